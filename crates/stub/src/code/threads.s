// Application threads: their start, their signal handler; and the service thread.
    // ---- application thread: r13 = its area
cloister_stub_thread:
    mov rdi, r13
    xor esi, esi
    mov eax, {nr_sigaltstack}
    syscall
    mov edi, 1                      // SECCOMP_SET_MODE_FILTER
    mov esi, {listener_flags}
    movabs rdx, {app_filter}
    mov eax, {nr_seccomp}
    syscall
    mov ebx, eax
    mov dword ptr [r13 + {a_listener}], eax
    mov dword ptr [r13 + {a_ready}], 1
    lea rdi, [r13 + {a_ready}]
    mov esi, 1                      // FUTEX_WAKE
    mov edx, 1
    mov eax, {nr_futex}
    syscall
    test ebx, ebx                   // without its filter it may not reach application code
    js 33f
    mov edi, {event_start}
    xor esi, esi
    lea rdx, [r13 + {a_first_uc}]
    mov r12, rdx
    jmp 30f

    // ---- application thread under ptrace: waits to be seized; the tracer sets its registers
cloister_stub_thread_traced:
    mov rdi, r13
    xor esi, esi
    mov eax, {nr_sigaltstack}
    syscall
    mov dword ptr [r13 + {a_ready}], 1
    lea rdi, [r13 + {a_ready}]
    mov esi, 1
    mov edx, 1
    mov eax, {nr_futex}
    syscall
40:
    lea rdi, [r13 + {a_ready}]
    xor esi, esi
    mov edx, 1
    xor r10d, r10d
    mov eax, {nr_futex}
    syscall
    jmp 40b

    // ---- signal handler: rdi = signal, rsi = siginfo, rdx = ucontext; on the alternate stack
cloister_stub_handler:
    mov r12, rdx
    mov r13, rsp
    and r13, -{area_len}
    lock and dword ptr [r13 + {l_state}], ~{spins}  // who spins shall look for this instead
    rdfsbase r10
    rdgsbase r8
30:
    mov eax, {event_nr}
    syscall
    test eax, eax                   // nobody answers: there is no filter, or no Sentry
    js 33f
    test eax, {reply_exit}
    jnz 33f
    test eax, {reply_bases}
    jz 32f
    mov rcx, qword ptr [r13 + {a_fs}]
    wrfsbase rcx
    mov rcx, qword ptr [r13 + {a_gs}]
    wrgsbase rcx
32:
    test eax, {reply_clock}
    jz 34f
    mov edi, 3                      // CLOCK_THREAD_CPUTIME_ID
    lea rsi, [r13 + {a_cpu_begin}]
    mov eax, {nr_clock_gettime}
    syscall
34:
    mov rsp, r12
cloister_stub_restorer:
    mov eax, {nr_rt_sigreturn}
    syscall
33:
cloister_stub_exit:
    xor edi, edi
    mov eax, {nr_exit}
    syscall
    hlt

    // ---- service thread: r13 = its area (used only to say that it is up)
cloister_stub_service:
    mov edi, 1
    mov esi, {listener_flags}
    movabs rdx, {service_filter}
    mov eax, {nr_seccomp}
    syscall
    mov ebx, eax
    mov dword ptr [r13 + {a_listener}], eax
    mov dword ptr [r13 + {a_ready}], 1
    lea rdi, [r13 + {a_ready}]
    mov esi, 1
    mov edx, 1
    mov eax, {nr_futex}
    syscall
    test ebx, ebx
    js 33b
    movabs r15, {command}
    xor r14d, r14d                  // last result
    xor ebp, ebp                    // index of the call that failed
50:
    mov edi, {event_service}
    mov rsi, r14
    mov rdx, rbp
    mov eax, {event_nr}
    syscall
    mov rbx, rax                    // number of calls in the batch
    xor r14d, r14d
    xor ebp, ebp
    lea r12, [r15 + 256]
51:
    cmp rbp, rbx
    jae 50b
    mov rax, qword ptr [r12]
    mov rdi, qword ptr [r12 + 8]
    mov rsi, qword ptr [r12 + 16]
    mov rdx, qword ptr [r12 + 24]
    mov r10, qword ptr [r12 + 32]
    mov r8,  qword ptr [r12 + 40]
    mov r9,  qword ptr [r12 + 48]
    syscall
    cmp rax, -4095
    jae 52f
    add r12, 56
    inc rbp
    jmp 51b
52:
    mov r14, rax
    jmp 50b
