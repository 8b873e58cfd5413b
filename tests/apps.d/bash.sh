# bash: expansions, jobs, traps, here-documents, coprocesses, process substitution.
set -u
f() { local x=$1; ((x > 0)) && { f $((x - 1)); return; }; echo deep; }
f 300
declare -A h=([a]=1 [b]=2); echo "${h[a]}${h[b]}" "${!h[*]}"
coproc cat; echo co >&"${COPROC[1]}"; read -r l <&"${COPROC[0]}"; echo "$l"; kill $COPROC_PID; wait $COPROC_PID; echo $?
diff <(seq 5) <(seq 6); echo $?
trap 'echo usr' USR1; kill -USR1 $$; trap 'echo exit' EXIT
(trap 'echo term; exit 4' TERM; while :; do sleep 0.05; done) & p=$!; sleep 0.3; kill $p; wait $p; echo $?
sleep 20 & sleep 0.2; kill -STOP $!; kill -CONT $!; kill $!; wait $!; echo $?
sh -c 'kill -INT $$'; echo $?
for i in {1..30}; do (exit $i) & pids[i]=$!; done; s=0; for i in {1..30}; do wait ${pids[i]}; s=$((s + $?)); done; echo $s
seq 100000 | while read -r n; do ((n == 7)) && { echo $n; break; }; done
echo "${PIPESTATUS[@]}"; false | true | false; echo "${PIPESTATUS[@]}"
exec 5>fd5; echo five >&5; exec 5>&-; cat fd5; { echo a; echo b >&2; } 2>&1 | sort
read -rt 0.1 x < <(sleep 1); echo $?
x=$(cat <<<here); echo $x; printf '%q\n' "a b"; [[ abc =~ ^a(.)c$ ]] && echo "${BASH_REMATCH[1]}"
ulimit -n 100; ulimit -n; umask 077; touch u; stat -c %a u; (ulimit -f 1; dd if=/dev/zero of=lim bs=4k count=1 status=none 2>/dev/null); echo $?

set -m; sleep 0.1 & fg >/dev/null; echo $?; jobs
for i in $(seq 50); do /bin/true; done; echo end
