. /bench/apps/lib.sh
timed "ffmpeg: 5 s of video" ffmpeg -v error -f lavfi -i "testsrc=duration=$(of 5):size=640x360:rate=25" -c:v mpeg4 -threads 2 -y out.avi
