# A Go program: net/http server and client in one, thousands of goroutines, timers, signals, os/exec, files.
"$APPS_IN/nethttp"
