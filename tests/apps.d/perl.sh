# perl: fork, pipes, sockets, signals, files.
perl -e '
use strict; use IO::Socket::INET; use POSIX ":sys_wait_h"; use IO::Select; use Time::HiRes "usleep"; $| = 1;
my @k; for my $i (1..5) { my $p = fork(); if (!$p) { exit $i } push @k, $p } for (@k) { waitpid($_, 0); print $? >> 8, "\n" }
open(my $f, "-|", "seq 1000") or die; my $s = 0; $s += $_ while <$f>; close $f; print "$s\n";
my $l = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1") or die "listen $!"; my $port = $l->sockport;
if (!fork()) { my $c = IO::Socket::INET->new("127.0.0.1:$port") or die; print $c "hi\n"; print scalar <$c>; exit 0 }
my $c = $l->accept; my $line = <$c>; print $c "got $line"; close $c; wait;
local $SIG{CHLD} = sub { }; local $SIG{USR1} = sub { print "usr1\n" }; kill USR1 => $$;
eval { local $SIG{ALRM} = sub { die "alarm\n" }; alarm 1; select(undef, undef, undef, 5); }; print $@;
my %h = map { $_ => $_ ** 2 } 1..1000; print join(",", map { $h{$_} } (5, 10, 999)), "\n";
open(my $o, ">", "x") or die; print $o "line $_\n" for 1..100; close $o; print -s "x", "\n"; rename "x", "y"; print join(" ", glob("*")), "\n";
print `cat y | tail -1`; print $? , "\n"; printf "%o\n", (stat "y")[2]; system("exit 3"); print $? >> 8, "\n"; die "end\n";
'
