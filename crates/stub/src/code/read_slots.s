// Lanes: what the Sentry has laid ready.
    // ---- reads of read slots, and changes of an epoll: see the module `lane`. ecx = which.
cloister_lane_slots:
220:
    cmp ecx, {kind_recv}
    jb 221f
    ja 222f
    test r10d, r10d                 // recvfrom(2) with flags, or for the address, asks the Sentry
    jnz 70b
    test r8, r8
    jnz 70b
221:
    mov eax, edi
    jmp 223f
222:
    cmp ecx, {kind_ioctl}
    jne 231f
    cmp esi, {fionread}
    je 221b
    jmp 70b
231:
    mov eax, edx
223:
    movabs rcx, {command}
    cmp eax, dword ptr [rcx + {cmd_slots}]
    jae 70b
    save_args
cloister_lane_slots_saved:
    cmp dword ptr [r11 + {l_nr}], {nr_epoll_ctl}
    je 235f
    cmp dword ptr [r11 + {l_nr}], {nr_ioctl}
    je 240f
    jmp 225f
224:                                // not here: as if nothing had been tried
    load_args
    jmp 70b
225:                                // eax = the descriptor, rsi = buffer, rdx = its length
    find_slot
    movabs rcx, {user_end}          // nothing of the stub's is the application's
    cmp rsi, rcx
    jae 224b
    mov r8, rdx
    shr r8, 30
    jnz 224b
    test edx, edx
    jz 224b
    count_left
    jz 229f
    cmp edx, r8d
    jbe 232f
    test eax, {then_more}
    jnz 224b
    mov edx, r8d
232:
    lea r10, [rsi + rdx]
    cmp r10, rcx
    ja 224b
    mov ecx, dword ptr [rdi + {slot_at}]
    movabs r10, {read_slots}
    add r10, rcx
    add r9, r10
    mov r10d, edx
233:                                // the direction flag is the application's: no string instructions
    cmp r10d, 32
    jb 226f
    mov rcx, qword ptr [r9]
    mov r8, qword ptr [r9 + 8]
    mov qword ptr [rsi], rcx
    mov qword ptr [rsi + 8], r8
    mov rcx, qword ptr [r9 + 16]
    mov r8, qword ptr [r9 + 24]
    mov qword ptr [rsi + 16], rcx
    mov qword ptr [rsi + 24], r8
    add r9, 32
    add rsi, 32
    sub r10d, 32
    jmp 233b
226:
    cmp r10d, 8
    jb 227f
    mov rcx, qword ptr [r9]
    mov qword ptr [rsi], rcx
    add r9, 8
    add rsi, 8
    sub r10d, 8
    jmp 226b
227:
    test r10d, r10d
    jz 228f
    mov cl, byte ptr [r9]
    mov byte ptr [rsi], cl
    inc r9
    inc rsi
    dec r10d
    jmp 227b
228:
    mov ecx, edx
    mov qword ptr [r11 + {l_result}], rcx
    shl rcx, {taken_shift}
    add rcx, rax
    lock cmpxchg qword ptr [rdi], rcx
cloister_lane_slots_claimed:
    jne 224b
cloister_lane_slots_taken:
    inc dword ptr [r11 + {l_slot_hits}]
230:
    load_args
    jmp cloister_lane_out
cloister_lane_slots_change:
229:
    test eax, {then_empty}
    jz 224b
    mov qword ptr [r11 + {l_result}], {eagain}
    jmp 230b
240:                                // FIONREAD: eax = the descriptor, rdx = where to. Done again, it is as it was.
    find_slot
    movabs rcx, {user_end}
    cmp rdx, rcx
    jae 224b
    count_left
    mov ecx, dword ptr [rdi + {slot_behind}]
    cmp ecx, {untold}
    je 224b
    add r8d, ecx
    cmp rax, qword ptr [rdi]        // both are of one fill
    jne 224b
    mov dword ptr [rdx], r8d
    mov qword ptr [r11 + {l_result}], 0
    inc dword ptr [r11 + {l_slot_hits}]
    jmp 230b
235:                                // edi = epoll, esi = operation, eax = descriptor, r10 = event
    movabs r8, {read_slots}
    cmp edi, dword ptr [r8 + {o_epoll}]
    jne 224b
    cmp edi, dword ptr [rcx + {cmd_slots}]
    jae 224b
    movzx ecx, byte ptr [r8 + rax + {o_states}]
    mov edx, eax
    xor r9d, r9d
    xor edi, edi
    mov eax, {o_in}                 // the state behind it
    cmp esi, 2
    je 236f
    ja 237f
    cmp esi, 1
    jne 224b
    cmp ecx, {o_out}
    jne 224b
    jmp 238f
236:
    mov eax, {o_out}
    cmp ecx, {o_in}
    jne 224b
    jmp 239f
237:
    cmp esi, 3
    jne 224b
    cmp ecx, {o_in}
    jne 224b
238:
    movabs rcx, {user_end}
    cmp r10, rcx
    jae 224b
    mov r9d, dword ptr [r10]
    mov rdi, qword ptr [r10 + 4]
    test r9d, {odd}
    jnz 224b
239:
    mov ecx, dword ptr [r8 + {o_laid}]
    mov r10d, ecx
    sub r10d, dword ptr [r8 + {o_taken}]
    cmp r10d, {ring_len}
    jae 224b
    mov r10d, ecx
    and r10d, {ring_len} - 1
    shl r10d, 5
    lea r10, [r8 + r10 + {o_ring}]
    mov dword ptr [r10], esi
    mov dword ptr [r10 + 4], edx
    mov dword ptr [r10 + 8], r9d
    mov qword ptr [r10 + {ring_data}], rdi
    mov qword ptr [r11 + {l_result}], 0
    inc ecx
    mov dword ptr [r8 + {o_laid}], ecx
cloister_lane_slots_laid:
    inc dword ptr [r11 + {l_slot_hits}]
    // What the Sentry finds there is done. It sets the state itself if this does not come to it.
    mov byte ptr [r8 + rdx + {o_states}], al
    jmp 230b
