// The names that the crate looks up, what several parts use, and where the code begins.
    .section .rodata.cloister_stub,"a",@progbits
    .balign 64
    .globl cloister_stub_begin
    .globl cloister_stub_end
    .globl cloister_stub_zygote
    .globl cloister_stub_thread
    .globl cloister_stub_thread_traced
    .globl cloister_stub_service
    .globl cloister_stub_handler
    .globl cloister_stub_restorer
    .globl cloister_stub_exit
    .globl cloister_lane
    .globl cloister_lane_nr
    .globl cloister_lane_flags
    .globl cloister_lane_chosen
    .globl cloister_lane_out
    .globl cloister_lane_mailbox
    .globl cloister_lane_asked
    .globl cloister_lane_answered
    .globl cloister_lane_slow
    .globl cloister_lane_called
    .globl cloister_lane_slots
    .globl cloister_lane_slots_saved
    .globl cloister_lane_slots_claimed
    .globl cloister_lane_slots_taken
    .globl cloister_lane_slots_change
    .globl cloister_lane_slots_laid
    .globl cloister_lane_mask
    .globl cloister_lane_mask_load
    .globl cloister_lane_mask_loaded
    .globl cloister_lane_mask_store
    .globl cloister_lane_mask_given
    .globl cloister_lane_wake
    .globl cloister_lane_yielded
    .globl cloister_lane_names
    .globl cloister_lane_names_store
    .globl cloister_lane_names_stored
    .globl cloister_lane_stack
    .globl cloister_lane_stack_store
    .globl cloister_lane_stack_stored
    .globl cloister_lane_stack_set
    .globl cloister_lane_stack_load
    .globl cloister_lane_stack_loaded
    .globl cloister_lane_stack_done
    .globl cloister_lane_end
    // The arguments of a system call, in the thread's area at r11.
    .macro save_args
    mov qword ptr [r11 + {l_args}], rdi
    mov qword ptr [r11 + {l_args} + 8], rsi
    mov qword ptr [r11 + {l_args} + 16], rdx
    mov qword ptr [r11 + {l_args} + 24], r10
    mov qword ptr [r11 + {l_args} + 32], r8
    mov qword ptr [r11 + {l_args} + 40], r9
    .endm
    .macro load_args
    mov rdi, qword ptr [r11 + {l_args}]
    mov rsi, qword ptr [r11 + {l_args} + 8]
    mov rdx, qword ptr [r11 + {l_args} + 16]
    mov r10, qword ptr [r11 + {l_args} + 24]
    mov r8, qword ptr [r11 + {l_args} + 32]
    mov r9, qword ptr [r11 + {l_args} + 40]
    .endm
    // The read slot of the descriptor in eax: where it is in rdi, its word in rax. Not filled: 224.
    .macro find_slot
    shl eax, {slot_shift}
    movabs rdi, {slots}
    add rdi, rax
    mov rax, qword ptr [rdi]
    mov ecx, eax
    and ecx, {live} + {closed}
    cmp ecx, {live}
    jne 224b
    .endm
    // What is left of the slot with the word rax: so many bytes in r8d, behind r9d that were taken.
    .macro count_left
    mov r8, rax
    shr r8, {len_shift}
    and r8d, {len_mask}
    mov r9, rax
    shr r9, {taken_shift}
    and r9d, {len_mask}
    sub r8d, r9d
    jb 224b
    .endm
cloister_stub_begin:
