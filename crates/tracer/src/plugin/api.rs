//! The part of QEMU's plugin interface that is used here, the same in versions 1 to 6, looked up in the running
//! emulator.
//!
//! The functions are looked up by name rather than linked, so that the crate also links into programs that are no
//! plugin, and so that an error names a missing function.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::ptr;

/// A translated block, and an instruction in it; valid only during the call that passes them.
pub type Translation = *mut c_void;
pub type Instruction = *mut c_void;

/// Callback with the plugin's id and a block that was translated.
pub type OnTranslation = extern "C" fn(u64, Translation);
/// Callback with a vCPU and the word that was registered.
pub type OnBlock = extern "C" fn(c_uint, *mut c_void);
/// Callback with a vCPU, the kind of access, the address in the program, and the word that was registered.
pub type OnAccess = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Callback with the plugin's id and a vCPU.
pub type OnProcessor = extern "C" fn(u64, c_uint);
/// Callback with the plugin's id and the word that was registered.
pub type OnExit = extern "C" fn(u64, *mut c_void);
/// Callback with the plugin's id, a vCPU, the system call's number and its arguments.
pub type OnSystemCall = extern "C" fn(u64, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);

/// `enum qemu_plugin_cb_flags`: the callback leaves the registers alone.
const NO_REGISTERS: c_int = 0;
/// `enum qemu_plugin_mem_rw`: loads and stores.
const LOADS_AND_STORES: c_int = 3;

/// Bytes of a page, and of the longest x86 instruction.
const PAGE_BYTES: u64 = 4096;
const INSTRUCTION_BYTES_MAX: u64 = 15;

/// Functions of the emulator.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    on_translation: unsafe extern "C" fn(u64, OnTranslation),
    on_processor_begin: unsafe extern "C" fn(u64, OnProcessor),
    on_processor_end: unsafe extern "C" fn(u64, OnProcessor),
    on_system_call: unsafe extern "C" fn(u64, OnSystemCall),
    on_exit: unsafe extern "C" fn(u64, OnExit, *mut c_void),
    on_block: unsafe extern "C" fn(Translation, OnBlock, c_int, *mut c_void),
    on_access: unsafe extern "C" fn(Instruction, OnAccess, c_int, c_int, *mut c_void),
    block_len: unsafe extern "C" fn(Translation) -> usize,
    block_instruction: unsafe extern "C" fn(Translation, usize) -> Instruction,
    instruction_address: unsafe extern "C" fn(Instruction) -> u64,
    instruction_bytes: unsafe extern "C" fn(Instruction) -> usize,
    access_size_shift: unsafe extern "C" fn(u32) -> c_uint,
    disassembly: unsafe extern "C" fn(Instruction) -> *mut c_char,
    /// Whether QEMU leaves in a block an instruction that it took back ([`Api::instructions`]).
    keeps_undone: bool,
}

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn free(memory: *mut c_void);
}

/// Looks up the function `name` of the process; `F` is its type.
///
/// # Safety
/// `F` must be the type of a function pointer, and match the function `name`.
unsafe fn find<F>(name: &'static CStr) -> Result<F, &'static str> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: a name that ends in zero; a null library means the whole process (RTLD_DEFAULT).
    let function = unsafe { dlsym(ptr::null_mut(), name.as_ptr()) };
    if function.is_null() {
        return Err(name.to_str().unwrap_or("function"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { transmute_copy(&function) })
}

/// Whether this is QEMU 9.0 or newer, which requires the second version of the interface: scoreboards came with it.
pub fn speaks_second() -> bool {
    // SAFETY: as in `find`; the address is not used.
    unsafe { !dlsym(ptr::null_mut(), c"qemu_plugin_scoreboard_new".as_ptr()).is_null() }
}

impl Api {
    /// Looks up all functions; on failure returns the name of a missing one.
    pub fn find() -> Result<Api, &'static str> {
        // SAFETY: the types are those of versions 1 to 6 of the interface.
        unsafe {
            Ok(Api {
                on_translation: find(c"qemu_plugin_register_vcpu_tb_trans_cb")?,
                on_processor_begin: find(c"qemu_plugin_register_vcpu_init_cb")?,
                on_processor_end: find(c"qemu_plugin_register_vcpu_exit_cb")?,
                on_system_call: find(c"qemu_plugin_register_vcpu_syscall_cb")?,
                on_exit: find(c"qemu_plugin_register_atexit_cb")?,
                on_block: find(c"qemu_plugin_register_vcpu_tb_exec_cb")?,
                on_access: find(c"qemu_plugin_register_vcpu_mem_cb")?,
                block_len: find(c"qemu_plugin_tb_n_insns")?,
                block_instruction: find(c"qemu_plugin_tb_get_insn")?,
                instruction_address: find(c"qemu_plugin_insn_vaddr")?,
                instruction_bytes: find(c"qemu_plugin_insn_size")?,
                access_size_shift: find(c"qemu_plugin_mem_size_shift")?,
                disassembly: find(c"qemu_plugin_insn_disas")?,
                keeps_undone: cfg!(target_arch = "x86_64") && !speaks_second(),
            })
        }
    }

    /// Registers callbacks for translations, begins and ends of threads, system calls, and the end of the program.
    ///
    /// # Safety
    /// Call only within `qemu_plugin_install`, with its id.
    pub unsafe fn listen(
        &self,
        id: u64,
        translation: OnTranslation,
        (begin, end): (OnProcessor, OnProcessor),
        system_call: OnSystemCall,
        exit: OnExit,
    ) {
        // SAFETY: the functions are the emulator's, called where it allows it.
        unsafe {
            (self.on_translation)(id, translation);
            (self.on_processor_begin)(id, begin);
            (self.on_processor_end)(id, end);
            (self.on_system_call)(id, system_call);
            (self.on_exit)(id, exit, ptr::null_mut());
        }
    }

    /// Registers a callback for every entry to `block`, with `word`.
    ///
    /// # Safety
    /// Call only within the callback that passed `block`.
    pub unsafe fn listen_to_block(&self, block: Translation, call: OnBlock, word: u64) {
        // SAFETY: the caller's promise; the word comes back as it is and is never followed.
        unsafe { (self.on_block)(block, call, NO_REGISTERS, ptr::without_provenance_mut(word as usize)) }
    }

    /// Registers a callback for every access of `instruction`.
    ///
    /// # Safety
    /// Call only within the callback that passed its block.
    pub unsafe fn listen_to_accesses(&self, instruction: Instruction, call: OnAccess) {
        // SAFETY: the caller's promise.
        unsafe { (self.on_access)(instruction, call, NO_REGISTERS, LOADS_AND_STORES, ptr::null_mut()) }
    }

    /// The instructions of `block`, in order.
    ///
    /// An x86 instruction that crosses a page begins a block of its own. QEMU notices that in the middle of it, and
    /// takes it back; but before 9.0 the plugin interface still counts it as the last one of the block before, where it
    /// is never executed. This iterator leaves it out.
    ///
    /// # Safety
    /// Call only within the callback that passed `block`.
    pub unsafe fn instructions(
        &self,
        block: Translation,
    ) -> impl DoubleEndedIterator<Item = Instruction> + ExactSizeIterator {
        let instruction_of = self.block_instruction;
        // SAFETY: the caller's promise, and a number below the length.
        let len = unsafe {
            let len = (self.block_len)(block);
            let undone = self.keeps_undone && len > 1 && self.is_undone(instruction_of(block, len - 1));
            len - usize::from(undone)
        };
        // SAFETY: the caller's promise, and numbers below the length.
        (0..len).map(move |number| unsafe { instruction_of(block, number) })
    }

    /// Whether `instruction`, the last one of several, was taken back at the end of the page: then only its first bytes
    /// are known, and these are never an instruction themselves, which the disassembler sees. (A QEMU without a
    /// disassembler does not tell; then the instruction counts.)
    ///
    /// # Safety
    /// Call only within the callback that passed its block.
    unsafe fn is_undone(&self, instruction: Instruction) -> bool {
        // SAFETY: the caller's promise.
        if unsafe { self.extent(instruction) }.start % PAGE_BYTES + INSTRUCTION_BYTES_MAX <= PAGE_BYTES {
            return false;
        }
        // SAFETY: the caller's promise; the text is ours, made by malloc, and ends in zero.
        unsafe {
            let text = (self.disassembly)(instruction);
            let undone = !text.is_null() && CStr::from_ptr(text).to_bytes().starts_with(b".byte");
            free(text.cast());
            undone
        }
    }

    /// Addresses of the first byte of `instruction` and of the byte behind it.
    ///
    /// # Safety
    /// Call only within the callback that passed its block.
    pub unsafe fn extent(&self, instruction: Instruction) -> std::ops::Range<u64> {
        // SAFETY: the caller's promise.
        let (from, bytes) = unsafe {
            (
                (self.instruction_address)(instruction),
                (self.instruction_bytes)(instruction),
            )
        };
        from..from + bytes as u64
    }

    /// Number of bytes of an access, decoded from the emulator's `kind`: always a power of two.
    #[inline]
    pub fn access_bytes(&self, kind: u32) -> u64 {
        // SAFETY: takes a number and gives one.
        1 << unsafe { (self.access_size_shift)(kind) }
    }
}
