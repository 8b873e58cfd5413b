. /bench/apps/lib.sh
n=$(of 8)
for i in $(seq "$n"); do
    cat >"f$i.cc" <<C
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
int f$i(int n) {
    std::map<std::string, std::vector<int>> m;
    for (int k = 0; k < n; k++) m[std::to_string(k % 7)].push_back(k);
    int s = 0;
    for (auto &p : m) { std::sort(p.second.begin(), p.second.end()); s += p.second.back(); }
    return s;
}
C
done
{ for i in $(seq "$n"); do echo "int f$i(int);"; done
  echo 'int main() { int s = 0;'
  for i in $(seq "$n"); do echo "s += f$i(100);"; done
  echo 'return s == 0; }'; } >main.cc
{ printf 'OBJS ='; for i in $(seq "$n"); do printf ' f%s.o' "$i"; done; echo ' main.o'
  echo 'prog: $(OBJS)'; printf '\tg++ -o $@ $^\n%%.o: %%.cc\n\tg++ -O1 -c -o $@ $<\n'; } >Makefile
export CCACHE_DISABLE=1
timed "C++ build, 8 files, make -j2" make -j2
