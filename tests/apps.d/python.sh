# python3: threads, subprocess, multiprocessing by fork and spawn, asyncio, sqlite3, mmap, signals, select.
cat >t.py <<'P'
import threading, subprocess, multiprocessing as mp, asyncio, sqlite3, mmap, os, sys, signal, socket, tempfile, queue, select, time, ctypes, resource, fcntl, struct, shutil
def work(n): return sum(i * i for i in range(n))
def put(q, n): q.put((n, work(n)))
def threads():
    q = queue.Queue(); t = [threading.Thread(target=lambda i=i: q.put(work(i * 100))) for i in range(20)]
    [x.start() for x in t]; [x.join() for x in t]; print(sorted(q.get() for _ in t)[-3:])
def procs():
    print(subprocess.run(['cat'], input=b'x' * 200000, stdout=subprocess.PIPE).stdout.count(b'x'))
    print(subprocess.run('echo out; echo err >&2; exit 3', shell=True, capture_output=True))
    print(subprocess.run(['sleep', '0.01']).returncode, subprocess.run(['sh', '-c', 'kill -9 $$']).returncode)
    try: subprocess.run(['sleep', '5'], timeout=0.1)
    except subprocess.TimeoutExpired as e: print('timeout')
def multi(how):
    c = mp.get_context(how)
    with c.Pool(3) as p: print(how, p.map(work, range(0, 1000, 100)))
    q = c.Queue(); ps = [c.Process(target=put, args=(q, n)) for n in (10, 20)]; [p.start() for p in ps]
    print(sorted(q.get() for _ in ps)); [p.join() for p in ps]; print([p.exitcode for p in ps])
    v = c.Value('i', 0)
    with c.Manager() as m: l = m.list([1, 2]); l.append(3); print(list(l))
async def aio():
    async def h(r, w): w.write((await r.readline()).upper()); await w.drain(); w.close()
    s = await asyncio.start_server(h, '127.0.0.1', 0); port = s.sockets[0].getsockname()[1]
    async def cl(i): r, w = await asyncio.open_connection('127.0.0.1', port); w.write(b'hello %d\n' % i); x = await r.read(); w.close(); return x
    print(await asyncio.gather(*[cl(i) for i in range(20)]))
    p = await asyncio.create_subprocess_exec('echo', 'sub', stdout=asyncio.subprocess.PIPE); print((await p.communicate())[0], p.returncode)
    try: await asyncio.wait_for(asyncio.sleep(5), 0.05)
    except asyncio.TimeoutError: print('late')
def maps():
    with open('m', 'wb+') as f:
        f.write(b'a' * 10000); f.flush(); m = mmap.mmap(f.fileno(), 10000); m[5000:5003] = b'xyz'; m.flush(); f.seek(5000); print(f.read(4)); 
        p = mmap.mmap(f.fileno(), 10000, access=mmap.ACCESS_COPY); p[0] = 66; print(m[0], p[0]); m.resize(20000); m[19999] = 1; print(os.path.getsize('m'))
    a = mmap.mmap(-1, 8192)
    if os.fork() == 0: a[0] = 77; os._exit(5)
    print(os.wait()[1], a[0])
def sigs():
    got = []
    signal.signal(signal.SIGALRM, lambda s, f: got.append(s)); signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    t = time.time()
    while len(got) < 4: time.sleep(1)
    signal.setitimer(signal.ITIMER_REAL, 0); print(set(got), time.time() - t < 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1); print(signal.sigpending(), signal.sigwait([signal.SIGUSR1]))
    r, w = os.pipe(); pid = os.fork()
    if pid == 0: os.close(r); os.write(w, b'q' * 100000); os._exit(0)
    os.close(w); n = 0
    while d := os.read(r, 7777): n += len(d)
    print(n, os.waitpid(pid, 0)[1])
def socks():
    a, b = socket.socketpair(); f = open('m', 'rb'); socket.send_fds(a, [b'x'], [f.fileno()]); d, fds, _, _ = socket.recv_fds(b, 10, 2); print(d, os.read(fds[0], 3))
    p = select.poll(); p.register(b, select.POLLIN); print(p.poll(0)); a.send(b'1'); print(len(p.poll(100)))
    e = select.epoll(); e.register(b, select.EPOLLIN | select.EPOLLET); print(len(e.poll(1)), len(e.poll(0)))
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0)); u.sendto(b'dgram', u.getsockname()); print(u.recvfrom(10)[0])
    with open('l', 'w') as x: fcntl.flock(x, fcntl.LOCK_EX); fcntl.lockf(x, fcntl.LOCK_EX); print(struct.unpack('hhqqi', fcntl.fcntl(x, fcntl.F_GETLK, struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 0, 0)))[0])
    print(resource.getrlimit(resource.RLIMIT_CORE)[0] >= -1, shutil.disk_usage('.').total > 0, os.cpu_count() > 0)
if __name__ == '__main__':
    threads(); procs(); multi('fork'); multi('spawn'); multi('forkserver'); asyncio.run(aio()); maps(); sigs(); socks()
    c = sqlite3.connect('x.db'); c.execute('create table t(a)'); c.executemany('insert into t values(?)', [(i,) for i in range(1000)]); c.commit(); print(c.execute('select sum(a) from t').fetchone())
    print(ctypes.CDLL(None).abs(-5)); sys.exit(9)
P
python3 t.py
