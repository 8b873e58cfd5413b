# openssl: hashes and ciphers that use wide registers; keys; TLS between two processes.
set -u
head -c 1000000 /dev/zero | openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff -iv 00 2>/dev/null >data
for h in sha1 sha256 sha512 sha3-256 blake2b512 md5; do openssl dgst -$h data; done
for c in aes-256-cbc chacha20 camellia-128-cbc; do openssl enc -$c -pbkdf2 -nosalt -k secret -in data | md5sum; done
openssl speed -seconds 1 -bytes 1024 sha256 2>/dev/null | grep -c '^sha256.*k'
openssl speed -seconds 1 -bytes 8192 -evp aes-128-gcm 2>/dev/null | grep -ic '^aes-128-gcm.*k'
openssl speed -seconds 1 -multi 2 ecdhp256 2>/dev/null | grep -c 256
openssl genrsa 2048 2>/dev/null | openssl rsa -check -noout
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k.pem -out c.pem -days 2 -subj /CN=x 2>/dev/null
p=$((47200 + $(id -u) % 100))
openssl s_server -accept 127.0.0.1:$p -cert c.pem -key k.pem -quiet -www >/dev/null 2>&1 &
pid=$!
for _ in $(seq 50); do
    r=$(printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -connect 127.0.0.1:$p -quiet -CAfile c.pem 2>/dev/null | head -1)
    [ -n "$r" ] && break
    sleep 0.1
done
echo "$r"
kill $pid
wait $pid
echo $?
