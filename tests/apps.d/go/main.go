// An HTTP server and its clients in one process, and what else exercises Go's runtime.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func get(c *http.Client, url string, total *int64) {
	r, err := c.Get(url)
	check(err)
	n, err := io.Copy(io.Discard, r.Body)
	check(err)
	r.Body.Close()
	atomic.AddInt64(total, n)
}

func serve(network, address string) {
	l, err := net.Listen(network, address)
	check(err)
	big := strings.Repeat("cloister", 40000)
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })
	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, big) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	s := &http.Server{Handler: mux}
	go s.Serve(l)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, l.Addr().String())
	}
	c := &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 32}}
	var total int64
	var wg sync.WaitGroup
	for i := 0; i < 32; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := 0; j < 20; j++ {
				get(c, "http://x/small", &total)
			}
			get(c, "http://x/big", &total)
			r, err := c.Post("http://x/echo", "text/plain", strings.NewReader(big))
			check(err)
			b, err := io.ReadAll(r.Body)
			check(err)
			r.Body.Close()
			atomic.AddInt64(&total, int64(len(b)))
		}()
	}
	wg.Wait()
	fmt.Println(network, total)
	check(s.Shutdown(context.Background()))
	_, err = net.Dial(network, l.Addr().String())
	fmt.Println("after:", err != nil)
}

func main() {
	serve("tcp", "127.0.0.1:0")
	serve("unix", "sock")

	var n int64
	var wg sync.WaitGroup
	ch := make(chan int)
	for i := 0; i < 5000; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			time.Sleep(time.Duration(i%10) * time.Millisecond)
			atomic.AddInt64(&n, int64(<-ch))
		}(i)
	}
	for i := 0; i < 5000; i++ {
		ch <- i
	}
	wg.Wait()
	fmt.Println("goroutines", n)

	// Locked threads, preemption by signals, garbage.
	for i := 0; i < 8; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			runtime.LockOSThread()
			h := sha256.New()
			for j := 0; j < 200; j++ {
				h.Write(make([]byte, 64<<10))
			}
			atomic.AddInt64(&n, int64(h.Sum(nil)[0]))
		}(i)
	}
	var stop int32
	go func() {
		for atomic.LoadInt32(&stop) == 0 {
		}
	}()
	wg.Wait()
	runtime.GC()
	atomic.StoreInt32(&stop, 1)
	fmt.Println("hashed", n)

	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGUSR1)
	check(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	fmt.Println(<-sig)

	for i := 0; i < 10; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			out, err := exec.Command("/bin/echo", "child", fmt.Sprint(i)).Output()
			check(err)
			check(os.WriteFile(fmt.Sprintf("out%d", i), out, 0o600))
		}(i)
	}
	wg.Wait()
	files, _ := filepath.Glob("out*")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		fmt.Print(f, " ", string(b))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	fmt.Println(exec.CommandContext(ctx, "/bin/sleep", "20").Run())
	defer func() {
		fmt.Println("recovered:", recover())
		os.Exit(7)
	}()
	var p *int
	*p = 1
}
