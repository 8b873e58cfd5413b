// The zygote and the spawners that are cloned from it.
    // ---- zygote: r12 = sequence already seen, r13 = end of the host's vDSO. Unmaps everything but the
    // stub's own pieces. What was the Sentry's may lie anywhere, also between them: its stack does.
    .macro unmap_to end
    movabs rsi, \end
    sub rsi, rdi
    mov eax, {nr_munmap}
    syscall
    test rax, rax
    jnz 33f
    .endm
cloister_stub_zygote:
    xor edi, edi
    unmap_to {text}
    movabs rdi, {text_end}
    unmap_to {command}
    movabs rdi, {command_end}
    unmap_to {host_vdso}
    mov rdi, r13
    unmap_to {areas}
    movabs rdi, {area0_end}
    unmap_to 0x7ffffffff000
    movabs r15, {command}
    jmp 20f

    // ---- spawner loop: r15 = command page, r12d = last sequence seen
20:
    mov eax, dword ptr [r15]
    cmp eax, r12d
    jne 21f
    mov rdi, r15
    xor esi, esi                    // FUTEX_WAIT (shared)
    mov edx, r12d
    xor r10d, r10d
    mov eax, {nr_futex}
    syscall
    jmp 20b
21:
    mov r12d, eax
    mov rbx, qword ptr [r15 + 8]    // operation
    mov rdi, qword ptr [r15 + 16]   // clone flags
    mov rdx, qword ptr [r15 + 24]   // parent tid address
    mov rbp, qword ptr [r15 + 32]   // start address
    mov r13, qword ptr [r15 + 40]   // thread area
    mov r14, qword ptr [r15 + 48]   // offset of the new command page
    mov r9,  qword ptr [r15 + 56]   // control descriptor
    cmp rbx, {op_position}
    jne 26f
    lea rdi, [rip + cloister_stub_position_name]
    mov esi, 1                      // MFD_CLOEXEC
    mov eax, {nr_memfd_create}
    syscall
    jmp 24f
26: xor esi, esi
    xor r10d, r10d
    mov r8, r9                      // tls argument: unused without CLONE_SETTLS; keeps r9 across
    mov eax, {nr_clone}
    syscall
    test rax, rax
    jz 23f
    cmp rbx, 2
    jne 24f
    mov rdi, r9                     // a thread: the result goes where no application code can write, into
    mov rsi, rax                    // a file's position; an error is above all thread ids
    test rax, rax
    jns 25f
    neg rsi
    bts rsi, {failed_bit}
25: mov ebx, eax
    xor edx, edx                    // SEEK_SET
    mov eax, {nr_lseek}
    syscall
    test ebx, ebx                   // a thread says itself that it is up
    jns 20b
24: mov dword ptr [r13 + {a_result}], eax
    mov dword ptr [r13 + {a_ready}], 1
    lea rdi, [r13 + {a_ready}]
    mov esi, 1                      // FUTEX_WAKE
    mov edx, 1
    mov eax, {nr_futex}
    syscall
    jmp 20b
23:
    cmp rbx, 2
    jne 22f
    jmp rbp                         // new thread
22:                                 // new process: map its own command page and first area over ours
    mov rdi, r15
    mov esi, {command_len}
    mov edx, 1                      // PROT_READ
    mov r10d, 0x11                  // MAP_SHARED | MAP_FIXED
    // r8 already holds the control descriptor
    mov r9, r14
    mov eax, {nr_mmap}
    syscall
    cmp rax, -4095
    jae 33f
    movabs rdi, {areas}
    mov esi, {area_len}
    mov edx, 3                      // PROT_READ | PROT_WRITE
    mov r9, rbp
    mov eax, {nr_mmap}
    syscall
    cmp rax, -4095
    jae 33f
    xor r12d, r12d
    jmp 20b
