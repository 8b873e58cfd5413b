// Lanes: from a patched site to a result, and to a system call where there is none.
    // ---- lanes: see the module `lane`. r11 = the thread's area, rcx = where the call returns to; all else
    // is the application's. rcx and r11 are what a system call destroys.
cloister_lane:
    mov qword ptr [r11 + {l_back}], rcx
cloister_lane_nr:
    mov qword ptr [r11 + {l_nr}], rax
cloister_lane_flags:
    lahf
    seto al
    mov word ptr [r11 + {l_flags}], ax
cloister_lane_chosen:
    mov rax, qword ptr [r11 + {l_nr}]
    cmp rax, {kinds}
    jae 80f
    lea rcx, [rip + cloister_stub_begin + {kinds_at}]
    movzx ecx, byte ptr [rcx + rax]
    cmp ecx, {kind_trap}
    jb 70f
    je 80f
    mov eax, ecx
    sub eax, {kind_read}
    cmp eax, 4
    jb 220f
    cmp ecx, {kinds_special}
    jb 60f
    test cl, {kind_own}
    jz 61f
    test edi, edi                   // of the caller itself
    jnz 70f
    dec ecx
61:
    mov ecx, dword ptr [r11 + rcx]
    cmp ecx, {ask}
    je 70f
    mov qword ptr [r11 + {l_result}], rcx
cloister_lane_out:
    mov ax, word ptr [r11 + {l_flags}]
    add al, 0x7f
    sahf
    mov rcx, qword ptr [r11 + {l_back}]
    mov rax, qword ptr [r11 + {l_result}]
    jmp rcx
cloister_lane_mailbox:
70:
    cmp dword ptr [r11 + {l_state}], {spins}
    jne 80f
    save_args
    mov eax, {spins}
    mov ecx, {spins} + {asked}
    lock cmpxchg dword ptr [r11 + {l_state}], ecx
cloister_lane_asked:
    jne 80f
    mov ecx, {patience}
71:
    test dword ptr [r11 + {l_state}], {answered}
    jnz 74f
    pause
    dec ecx
    jnz 71b
72:
    lock or dword ptr [r11 + {l_state}], {parked}
    test dword ptr [r11 + {l_state}], {answered}
    jnz 74f
    mov edi, {event_park}
    mov eax, {event_nr}
    syscall
    rdgsbase r11
    mov rdi, qword ptr [r11 + {l_args}]
    test dword ptr [r11 + {l_state}], {answered}
    jz 72b
cloister_lane_answered:
74:
    lock and dword ptr [r11 + {l_state}], {spins}
    jmp cloister_lane_out
cloister_lane_slow:
80:
    lock and dword ptr [r11 + {l_state}], ~{spins}
    mov ax, word ptr [r11 + {l_flags}]
    add al, 0x7f
    sahf
    mov rax, qword ptr [r11 + {l_nr}]
    syscall
cloister_lane_called:
    rdgsbase r11
    mov rcx, qword ptr [r11 + {l_back}]
    jmp rcx
