module nethttp

go 1.18
