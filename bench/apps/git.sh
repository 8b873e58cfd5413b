. /bench/apps/lib.sh
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
timed "git clone, 5,000 files" git clone -q --no-local /bench/root/tree tree
# What the clone just wrote may be newer than its index: the first status looks at all files' contents.
timed "git status, first" git -C tree status --short
timed "git status, again" git -C tree status --short
