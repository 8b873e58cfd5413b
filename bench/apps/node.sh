. /bench/apps/lib.sh
cat >s.js <<'J'
const http = require('http');
const n = Number(process.argv[2]), agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
const s = http.createServer((q, r) => r.end('hello')).listen(0, '127.0.0.1', () => {
  let started = 0, done = 0;
  const t = process.hrtime.bigint();
  const one = () => {
    if (started++ >= n) return;
    http.get({ port: s.address().port, host: '127.0.0.1', agent }, (r) => {
      r.resume();
      r.on('end', () => {
        if (++done === n) {
          const sec = Number(process.hrtime.bigint() - t) / 1e9;
          console.log(`node http\t${(n / sec).toFixed(1)}\t/s`);
          process.exit(0);
        }
        one();
      });
    });
  };
  for (let i = 0; i < 8; i++) one();
});
J
timed "node: start and end" node -e 0
node s.js "$(of 5000)"
