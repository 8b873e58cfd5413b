# node: the event loop, its thread pool, workers, children, sockets.
command -v node >/dev/null || { echo skip; exit; }
cat >t.js <<'J'
const fs = require('fs'), http = require('http'), cp = require('child_process'), crypto = require('crypto');
const { Worker } = require('worker_threads');
(async () => {
  console.log(crypto.createHash('sha256').update('x').digest('hex'));
  await Promise.all([...Array(20).keys()].map(i => fs.promises.writeFile(`f${i}`, 'y'.repeat(i * 1000))));
  console.log((await fs.promises.readdir('.')).length);
  const s = http.createServer((q, r) => { let b = ''; q.on('data', d => b += d); q.on('end', () => r.end(q.url + b.length)); });
  await new Promise(r => s.listen(0, '127.0.0.1', r));
  const one = i => new Promise((ok, no) => { const q = http.request({ port: s.address().port, path: '/' + i, method: 'POST' }, r => { let b = ''; r.on('data', d => b += d); r.on('end', () => ok(b)); }); q.on('error', no); q.end('z'.repeat(i * 500)); });
  console.log((await Promise.all([...Array(50).keys()].map(one))).join(' '));
  s.close();
  console.log(cp.execSync('echo from child; exit 0').toString());
  console.log(await new Promise(r => cp.exec('exit 4', e => r(e.code))));
  console.log(await new Promise(r => { const w = new Worker("require('worker_threads').parentPort.postMessage(6*7)", { eval: true }); w.on('message', r); }));
  console.log(await new Promise(r => crypto.pbkdf2('a', 'b', 20000, 16, 'sha1', (e, k) => r(k.toString('hex')))));
  const z = require('zlib'); console.log(z.gunzipSync(z.gzipSync('q'.repeat(100000))).length);
  let x = 0; for (let i = 0; i < 3e6; i++) x = (x * 31 + i) | 0; console.log(x);
  const w = new WebAssembly.Memory({ initial: 10 }); w.grow(5); console.log(w.buffer.byteLength);
  setTimeout(() => process.exit(6), 20);
})();
J
node t.js
