// Lanes: calls that are done where they are made. The last part: it ends the code.
    // ---- calls with arguments that are done here. ecx = which.
cloister_lane_mask:
60:
    cmp ecx, {kind_wake}
    je 95f
    ja 94f
    // rt_sigprocmask(edi = how, rsi = set, rdx = old, r10 = length)
    cmp dword ptr [r11 + {l_masks_open}], 0
    jne 70b
    cmp r10, 8
    jne 70b
    test rsi, rsi
    jz 91f
    cmp edi, 2
    ja 70b
    lea rax, [rsi + 7]
    shr rax, 32
    cmp eax, {user_high}            // nothing of the stub's is the application's
    jae 70b
cloister_lane_mask_load:
    mov rcx, qword ptr [rsi]
cloister_lane_mask_loaded:
    cmp edi, 1
    ja 92f
    je 90f
    or rcx, qword ptr [r11 + {l_mask}]      // SIG_BLOCK
    jmp 92f
90: not rcx                                 // SIG_UNBLOCK
91: mov rax, qword ptr [r11 + {l_mask}]
    test rsi, rsi
    cmovz rcx, rax
    and rcx, rax
    jmp 93f
92: mov rax, qword ptr [r11 + {l_mask}]
93: btr rcx, 8                              // SIGKILL
    btr rcx, 18                             // SIGSTOP
    mov qword ptr [r11 + {l_new_mask}], rcx
    test rdx, rdx
    jz cloister_lane_mask_given
    lea rcx, [rdx + 7]
    shr rcx, 32
    cmp ecx, {user_high}
    jae 70b
cloister_lane_mask_store:
    mov qword ptr [rdx], rax
cloister_lane_mask_given:
    // From here on the call is done, but for what this code still does, or the Sentry in its place.
    mov rcx, qword ptr [r11 + {l_new_mask}]
    mov rax, rcx
    xchg qword ptr [r11 + {l_mask}], rax    // a fence: senders set the bit, then look at the mask
    not rcx
    test qword ptr [r11 + {l_pending}], rcx
    jnz 99f
    mov qword ptr [r11 + {l_result}], 0
    jmp cloister_lane_out
99: int3                                    // the Sentry makes it: done
    jmp 99b

cloister_lane_wake:
    // futex(rdi = word, esi = operation, ..., r9d = bits)
95:
    cmp dword ptr [r11 + {l_wakes_open}], 0
    jne 70b
    cmp esi, {wake_private}
    je 97f
    cmp esi, {wake_bits_private}
    jne 70b
    test r9d, r9d
    jz 70b
97:
    test edi, 3
    jnz 70b
    mov rcx, rdi
    shr rcx, 32
    cmp ecx, {user_high}
    jae 70b
    mov rax, rdi
    mov rcx, rdi
    shr rax, 2
    shr rcx, 12
    xor eax, ecx
    and eax, {waiters_slots} - 1
    mov qword ptr [r11 + {l_result}], 0
    lock or dword ptr [r11 + {l_wakes_open}], 0     // a fence: who waits counts itself, then looks at the word
    movabs rcx, {waiters}
    cmp dword ptr [rcx + 4 * rax], 0
    jne 70b
    jmp cloister_lane_out

94:
    cmp ecx, {kind_names}
    je 98f
    ja 120f

    // sched_yield()
96:
    cmp dword ptr [r11 + {l_yields_open}], 0
    jne 70b
    mov qword ptr [r11 + {l_result}], 0
    mov eax, {nr_yield}
    syscall
cloister_lane_yielded:
    rdgsbase r11
    jmp cloister_lane_out

cloister_lane_names:
    // uname(rdi = names)
98:
    cmp dword ptr [r11 + {l_names_open}], 0
    jne 70b
    lea rax, [rdi + {names_len} - 1]
    shr rax, 32
    cmp eax, {user_high}
    jae 70b
    mov qword ptr [r11 + {l_result}], 0
    xor ecx, ecx
cloister_lane_names_store:
127:
    mov rax, qword ptr [r11 + rcx + {l_names}]
    mov qword ptr [rdi + rcx], rax
    add ecx, 8
    cmp ecx, {names_len} - 6
    jb 127b
    mov eax, dword ptr [r11 + rcx + {l_names}]
    mov dword ptr [rdi + rcx], eax
    movzx eax, word ptr [r11 + rcx + {l_names} + 4]
    mov word ptr [rdi + rcx + 4], ax
cloister_lane_names_stored:
    jmp cloister_lane_out

cloister_lane_stack:
    // sigaltstack(rdi = new, rsi = old): one of both. rsp is the application's. What is not done here needs registers:
    // it traps.
120:
    cmp dword ptr [r11 + {l_stacks_open}], 0
    jne 80b
    mov rax, rdi
    test rdi, rdi
    cmovz rax, rsi
    add rax, {stack_len} - 1
    shr rax, 32
    cmp eax, {user_high}
    jae 80b
    mov qword ptr [r11 + {l_result}], 0
    mov ecx, dword ptr [r11 + {l_stack_at}]
    mov rax, rsp                            // on_sig_stack
    sub rax, qword ptr [r11 + rcx + {l_stacks}]
    jbe 121f
    cmp rax, qword ptr [r11 + rcx + {l_stacks} + 16]
    ja 121f
    test dword ptr [r11 + rcx + {l_stacks} + 8], {ss_autodisarm}
    mov eax, {ss_onstack}
    jz 122f
121:
    xor eax, eax
122:                                        // eax: SS_ONSTACK if it is on it
    test rdi, rdi
    jnz 124f
    test rsi, rsi
    jz cloister_lane_out
    cmp qword ptr [r11 + rcx + {l_stacks} + 16], 0
    jne 123f
    mov eax, {ss_disable}
123:
    test dword ptr [r11 + rcx + {l_stacks} + 8], {ss_autodisarm}
    jz cloister_lane_stack_store
    bts eax, 31
cloister_lane_stack_store:
    mov qword ptr [rsi + 8], rax            // and what pads it
    mov rax, qword ptr [r11 + rcx + {l_stacks}]
    mov qword ptr [rsi], rax
    mov rax, qword ptr [r11 + rcx + {l_stacks} + 16]
    mov qword ptr [rsi + 16], rax
cloister_lane_stack_stored:
    jmp cloister_lane_out
cloister_lane_stack_set:
124:
    // With both, what is given out may lie where the new one is read again if that faults.
    test rsi, rsi
    jnz 80b
    test eax, eax                           // EPERM
    jnz 80b
    xor ecx, {stack_len}
cloister_lane_stack_load:
    mov rax, qword ptr [rdi]
    mov qword ptr [r11 + rcx + {l_stacks}], rax
    mov rax, qword ptr [rdi + 16]
    mov qword ptr [r11 + rcx + {l_stacks} + 16], rax
    mov eax, dword ptr [rdi + 8]
cloister_lane_stack_loaded:
    mov qword ptr [r11 + rcx + {l_stacks} + 8], rax
    btr eax, 31                             // SS_AUTODISARM
    cmp eax, {ss_disable}
    ja 80b                                  // EINVAL
    je 125f
    cmp qword ptr [r11 + rcx + {l_stacks} + 16], {minsigstksz}
    jb 80b                                  // ENOMEM
    jmp 126f
125:
    mov qword ptr [r11 + rcx + {l_stacks}], 0
    mov qword ptr [r11 + rcx + {l_stacks} + 16], 0
126:
    mov dword ptr [r11 + {l_stack_at}], ecx
cloister_lane_stack_done:
    jmp cloister_lane_out
cloister_lane_end:
    hlt
cloister_stub_position_name:
    .asciz "cloister-start"

cloister_stub_end:
    .previous
