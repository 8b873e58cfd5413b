. /bench/apps/lib.sh
export GOCACHE=$work/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local GOTELEMETRY=off CGO_ENABLED=0 GOPATH=$work/path
mkdir m
cd m
printf 'module m\n\ngo 1.20\n' >go.mod
printf 'package main\n\nimport "strconv"\n\nfunc main() { println(strconv.Itoa(42)) }\n' >main.go
# With nothing in the cache: the runtime and a few packages are compiled, too.
timed "Go build, empty cache" go build -o m .
timed "Go build, again" go build -o m2 .
cd ..
