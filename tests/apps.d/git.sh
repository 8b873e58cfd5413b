# git: a repository, branches, a merge, a clone of it, packing, checking.
set -eu
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git init -q -b main one
cd one
for i in $(seq 200); do
    mkdir -p "d$((i % 7))"
    seq "$i" $((i + 300)) >"d$((i % 7))/f$i"
done
git add .
git commit -q -m first
git checkout -q -b side
echo side >>d1/f1
git commit -q -am side
git checkout -q main
echo main >>d2/f2
git commit -q -am main
git merge -q side -m merge
git log --oneline --graph
git gc -q
git fsck --full 2>/dev/null
git count-objects -v | grep -v size
cd ..
git clone -q one two
git clone -q --no-local --bare one three.git
git -C two status --short --branch
git -C three.git rev-parse HEAD
git -C two grep -c 250 | sort | md5sum
git -C two archive HEAD | tar tf - | wc -l
cd two
git rm -q d1/f1
git mv d2/f2 d2/new
git stash -q
git stash pop -q
git status --short
git diff HEAD --stat | tail -1
git worktree add -q ../wt side
git -C ../wt log -1 --format=%s
git push -q origin HEAD:refs/heads/pushed
git -C ../one branch -a
