/*
 * A guest that is one page of program: it drives a mock card as firmware would, without a kernel in between, and is over
 * in a quarter of a second. 32 bits, no paging, no IOMMU: a card's DMA goes to physical addresses and its MSI-X to the
 * local APIC.
 *
 * It starts as a PVH guest does (Xen's page "x86/HVM direct boot ABI"): protected mode, flat segments, no interrupts. It
 * says on the first serial port what it tests, in the lines of fpga_vm's lib.rs.
 *
 * Offsets and words are retyped from docs/registers.md and docs/isa.md, not taken from our code.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* The entry that the ELF note announces (type 18, XEN_ELFNOTE_PHYS32_ENTRY), a stack, and the interrupt handlers. */
asm(".pushsection .note.pvh, \"a\", @note\n"
    ".balign 4\n"
    ".long 4, 4, 18\n"
    ".asciz \"Xen\"\n"
    ".long start\n"
    ".popsection\n"
    ".globl start\n"
    "start:\n"
    "    cld\n"
    "    mov $stack + 16384, %esp\n"
    "    call run\n"
    "1:  hlt\n"
    "    jmp 1b\n"
    /* A handler counts and acknowledges; one for each vector that the card may raise, and one for all the rest. */
    "on_first: incl raised\n"
    "    jmp on_any\n"
    "on_second: incl raised + 4\n"
    "    jmp on_any\n"
    "on_other: incl raised + 8\n"
    "on_any: push %eax\n"
    "    mov $0xfee000b0, %eax\n"
    "    movl $0, (%eax)\n"
    "    pop %eax\n"
    "    iret\n");

u8 stack[16384] __attribute__((aligned(16)));
volatile u32 raised[3];
void on_first(void), on_second(void), on_other(void);

static inline void out8(u16 port, u8 value) { asm volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }
static inline void out32(u16 port, u32 value) { asm volatile("outl %0, %1" : : "a"(value), "Nd"(port)); }
static inline u8 in8(u16 port)
{
    u8 value;
    asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static inline u32 in32(u16 port)
{
    u32 value;
    asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static inline u64 ticks(void)
{
    u64 value;
    asm volatile("rdtsc" : "=A"(value));
    return value;
}

/* The compiler may call these whatever it is told. */
void *memset(void *to, int value, u32 bytes)
{
    asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(value) : "memory");
    return to;
}
void *memcpy(void *to, const void *from, u32 bytes)
{
    void *start = to;
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return start;
}

/* --- What is said --- */

static void say(const char *text)
{
    for (; *text; text++) {
        while (!(in8(0x3fd) & 0x20))
            ;
        out8(0x3f8, *text);
    }
}

static void say_hex(u32 value)
{
    char text[11] = "0x";
    for (int digit = 0; digit < 8; digit++)
        text[2 + digit] = "0123456789abcdef"[value >> (28 - 4 * digit) & 15];
    say(text);
}

static void say_number(u32 value)
{
    char text[11];
    int at = 10;
    text[at] = 0;
    do
        text[--at] = '0' + value % 10;
    while (value /= 10);
    say(text + at);
}

static int good; /* whether the test that runs is good until now */

/* Holds `found` against `right`. */
static void check(const char *what, u32 found, u32 right)
{
    if (found == right)
        return;
    good = 0;
    say("log ");
    say(what);
    say(" is ");
    say_hex(found);
    say(" and should be ");
    say_hex(right);
    say("\n");
}

/* --- The card's configuration space --- */

static u32 card; /* bus, device and function as port 0xcf8 takes them */

static u32 config_read(u32 offset)
{
    out32(0xcf8, 0x80000000 | card | (offset & 0xfc));
    return in32(0xcfc);
}

static void config_write(u32 offset, u32 value)
{
    out32(0xcf8, 0x80000000 | card | (offset & 0xfc));
    out32(0xcfc, value);
}

#define ID 0x00
#define COMMAND 0x04
#define CLASS 0x08
#define BAR(n) (0x10 + 4 * (n))
#define CAPABILITIES 0x34
#define MEMORY 2u
#define MASTER 4u

static void command(u32 bits) { config_write(COMMAND, bits); }

/* Offset of a capability, or 0. The list is followed for as many steps as it can have. */
static u32 capability(u8 id)
{
    u32 at = config_read(CAPABILITIES) & 0xfc;
    for (int step = 0; at && step < 48; step++) {
        u32 word = config_read(at);
        if ((word & 0xff) == id)
            return at;
        at = word >> 8 & 0xfc;
    }
    return 0;
}

/* --- Its registers --- */

/* Where this guest puts the BARs: in the hole below the firmware, which nobody uses in a machine this small. */
#define REGISTERS 0xe0000000u
#define VECTORS 0xe0100000u
#define BLOCK (REGISTERS + 0x1000) /* of the sequencer */
#define QUEUE (BLOCK + 0x400)
#define DEPTH 16u

static inline volatile u32 *at(u32 address) { return (volatile u32 *)address; }

/* --- Its rings, and words for them --- */

static u8 submissions[DEPTH][64] __attribute__((aligned(4096)));
static volatile u32 completions[DEPTH][8] __attribute__((aligned(4096)));
static u8 out_data[65536] __attribute__((aligned(4096)));
static u8 back_data[65536] __attribute__((aligned(4096)));
static u32 stored, taken;

static u32 crc32c(const u8 *bytes, int count)
{
    u32 crc = ~0u;
    while (count--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

static void put(u8 *word, int offset, int bytes, u64 value)
{
    for (int byte = 0; byte < bytes; byte++)
        word[offset + byte] = value >> 8 * byte;
}

#define NOP 1
#define COPY 24
#define FROM_HOST 0x01
#define TO_HOST 0x10

/* Stores an instruction and rings. */
static void submit(u8 operation, u8 operands, u64 source, u64 destination, u64 bytes)
{
    u8 *word = submissions[stored % DEPTH];
    memset(word, 0, 64);
    word[0] = 1;
    word[1] = operation;
    put(word, 2, 2, 0x100 + stored);
    word[13] = operands;
    put(word, 16, 8, source);
    put(word, 24, 8, destination);
    put(word, 32, 8, bytes);
    put(word, 60, 4, crc32c(word, 60));
    stored++;
    asm volatile("" : : : "memory");
    *at(QUEUE + 0x18) = stored;
}

/* How long a wait may take, in ticks: some ten seconds until the first that was in vain. */
static u64 patience = 30000000000ull;
#define NONE 0xffffu

/* Whether a wait that began at `begin` has to end. */
static int is_late(u64 begin)
{
    if (ticks() - begin < patience)
        return 0;
    patience = 1000000000ull;
    return 1;
}

/* Waits for a completion and gives its status, or NONE after a bound. Checks its tag. */
static u32 complete(void)
{
    volatile u32 *word = completions[taken % DEPTH];
    u32 phase = taken / DEPTH % 2 == 0;
    for (u64 begin = ticks(); word[7] >> 31 != phase;)
        if (is_late(begin))
            return NONE;
    check("tag", word[1] >> 16, 0x100 + taken);
    u32 status = word[7] >> 8 & 0xff;
    taken++;
    *at(QUEUE + 0x1c) = taken;
    return status;
}

/* Makes queue 0 live anew and lets the sequencer run. */
static void start_queue(void)
{
    *at(QUEUE + 0x14) = 0;
    memset((void *)completions, 0, sizeof completions);
    stored = taken = 0;
    *at(QUEUE + 0x00) = (u32)submissions;
    *at(QUEUE + 0x04) = 0;
    *at(QUEUE + 0x08) = (u32)completions;
    *at(QUEUE + 0x0c) = 0;
    *at(QUEUE + 0x10) = DEPTH;
    *at(QUEUE + 0x14) = 1;
    check("queue's enable", *at(QUEUE + 0x14), 1);
    *at(BLOCK + 0x100) = 1;
}

/* --- Interrupts --- */

static u64 gates[256];

static void set_gate(int vector, void (*handler)(void))
{
    u32 code, address = (u32)handler;
    asm("mov %%cs, %0" : "=r"(code));
    gates[vector] = (u64)((address & 0xffff0000) | 0x8e00) << 32 | (code & 0xffff) << 16 | (address & 0xffff);
}

#define FIRST_VECTOR 0x50

static void start_interrupts(void)
{
    struct {
        u16 limit;
        u32 base;
    } __attribute__((packed)) table = {sizeof gates - 1, (u32)gates};
    for (int vector = 0; vector < 256; vector++)
        set_gate(vector, on_other);
    set_gate(FIRST_VECTOR, on_first);
    set_gate(FIRST_VECTOR + 1, on_second);
    asm volatile("lidt %0" : : "m"(table));
    out8(0x21, 0xff); /* the old controllers stay silent */
    out8(0xa1, 0xff);
    *at(0xfee000f0) = 0x1ff; /* the local APIC is on */
    asm volatile("sti");
}

/* Waits until `vector` was raised `count` times in all; says whether it was. */
static u32 was_raised(int vector, u32 count)
{
    for (u64 begin = ticks(); raised[vector] < count;)
        if (is_late(begin))
            return 0;
    return raised[vector] == count;
}

static void set_vector(u32 entry, int vector, u32 masked)
{
    *at(VECTORS + 16 * entry) = 0xfee00000;
    *at(VECTORS + 16 * entry + 4) = 0;
    *at(VECTORS + 16 * entry + 8) = FIRST_VECTOR + vector;
    *at(VECTORS + 16 * entry + 12) = masked;
}

/* --- Tests --- */

static void configuration_space(void)
{
    check("vendor and device", config_read(ID), 0xf9a01234);
    check("class", config_read(CLASS) >> 8, 0x120000);
    config_write(ID, 0);
    check("vendor and device after a write", config_read(ID), 0xf9a01234);
    check("a status bit for capabilities", config_read(COMMAND) >> 20 & 1, 1);
    u32 msix = capability(0x11);
    check("MSI-X capability found", msix != 0, 1);
    check("its vectors", (config_read(msix) >> 16 & 0x7ff) + 1, 8);
    check("its table", config_read(msix + 4), 4);
    check("its pending bits", config_read(msix + 8), 0x804);
    check("PCI Express capability found", capability(0x10) != 0, 1);
    for (u8 function = 1; function < 8; function++) {
        u32 self = card;
        card |= function << 8;
        check("a function that is not there", config_read(ID), 0xffffffff);
        card = self;
    }
}

static void bars_tell_their_size(void)
{
    command(0);
    config_write(BAR(0), 0xffffffff);
    config_write(BAR(1), 0xffffffff);
    check("BAR0 sized: 64 KiB, 64 bits", config_read(BAR(0)) & ~8u, 0xffff0004);
    check("BAR1 sized", config_read(BAR(1)), 0xffffffff);
    config_write(BAR(2), 0xffffffff);
    check("BAR2 is not there", config_read(BAR(2)), 0);
    config_write(BAR(0), REGISTERS);
    config_write(BAR(1), 0);
    check("BAR0 placed", config_read(BAR(0)) & ~15u, REGISTERS);
    config_write(BAR(4), 0xffffffff);
    check("BAR4 sized: 4 KiB at least", (config_read(BAR(4)) & 0xfff) < 16, 1);
    config_write(BAR(4), VECTORS);
    config_write(BAR(5), 0);
    check("BAR4 placed", config_read(BAR(4)) & ~15u, VECTORS);
}

static void registers_answer(void)
{
    command(0);
    /* What is read then is the machine's matter: all-ones from a real one, zero from QEMU. */
    check("MAGIC read without memory decoding", *at(BLOCK + 0x20) == 0x51455346, 0);
    command(MEMORY);
    check("MAGIC", *at(BLOCK + 0x20), 0x51455346);
    for (u32 value = 1; value; value <<= 1) {
        *at(BLOCK + 0x114) = value;
        check("SCRATCH", *at(BLOCK + 0x114), value);
    }
    *at(BLOCK + 0x20) = 0;
    check("MAGIC after a write", *at(BLOCK + 0x20), 0x51455346);
    check("a byte of MAGIC", *(volatile u8 *)(BLOCK + 0x20), 0xff);
    u64 begin = ticks();
    for (int read = 0; read < 256; read++)
        *at(BLOCK + 0x114);
    say("log one MMIO read takes ");
    say_number((u32)(ticks() - begin) / 256);
    say(" ticks\n");
}

static void dma_moves_bytes_both_ways(void)
{
    command(MEMORY | MASTER);
    start_queue();
    u32 seed = 1;
    for (u32 index = 0; index < sizeof out_data; index++)
        out_data[index] = (seed = seed * 1103515245 + 12345) >> 16;
    /* More rounds than the ring is deep, so that it wraps; always another place on the card. */
    for (u32 round = 0; round < 12; round++) {
        u32 bytes = 64u << round % 11;
        memset(back_data, 0x5a, sizeof back_data);
        submit(COPY, FROM_HOST, (u32)out_data, 4096 + 65536 * round, bytes);
        check("status of a copy to the card", complete(), 0);
        submit(COPY, TO_HOST, 4096 + 65536 * round, (u32)back_data, bytes);
        check("status of a copy to the host", complete(), 0);
        u32 same = 0;
        while (same < bytes && back_data[same] == out_data[same])
            same++;
        check("bytes that came back as they were", same, bytes);
        check("the byte behind them", bytes == sizeof back_data ? 0x5a : back_data[bytes], 0x5a);
    }
}

static void dma_to_nowhere_is_a_status(void)
{
    command(MEMORY | MASTER);
    start_queue();
    submit(COPY, FROM_HOST, 0x7f0000000000, 0, 64);
    check("status of a read from where nothing is", complete(), 11);
    submit(COPY, TO_HOST, 0, 0x7f0000000000, 64);
    check("status of a write to where nothing is", complete(), 12);
    submit(NOP, 0, 0, 0, 0);
    check("status of the next instruction", complete(), 0);
}

static void dma_needs_bus_mastering(void)
{
    command(MEMORY | MASTER);
    start_queue();
    command(MEMORY);
    *at(BLOCK + 0x108) = ~0u;
    submit(NOP, 0, 0, 0, 0);
    u64 begin = ticks();
    while (!(*at(BLOCK + 0x108) & 2) && !is_late(begin))
        ;
    check("error that the fetch failed", *at(BLOCK + 0x108) & 2, 2);
    check("completions", completions[0][7], 0);
    *at(BLOCK + 0x108) = ~0u;
}

static void msix_reaches_the_local_apic(void)
{
    u32 msix = capability(0x11), control = config_read(msix);
    command(MEMORY | MASTER);
    start_interrupts();
    set_vector(0, 0, 0);
    set_vector(1, 1, 1);
    config_write(msix, control | 0x80000000);
    start_queue();

    *at(QUEUE + 0x24) = 0;
    *at(QUEUE + 0x20) = taken;
    submit(NOP, 0, 0, 0, 0);
    check("status", complete(), 0);
    check("vector 0 raised once", was_raised(0, 1), 1);
    submit(NOP, 0, 0, 0, 0);
    check("status", complete(), 0);
    check("vector 0 not raised without being armed", raised[0], 1);

    /* Vector 1, masked after it was open, waits until it is open again. Open first, because QEMU connects a vector of
       a card that is not its own only then. */
    set_vector(1, 1, 0);
    set_vector(1, 1, 1);
    *at(QUEUE + 0x24) = 1;
    *at(QUEUE + 0x20) = taken;
    submit(NOP, 0, 0, 0, 0);
    check("status", complete(), 0);
    /* Time for an interrupt to go astray. Who keeps the pending bit is QEMU's matter, so it is not looked at. */
    for (u64 begin = ticks(); ticks() - begin < 50000000;)
        ;
    check("vector 1 not raised while masked", raised[1], 0);
    set_vector(1, 1, 0);
    check("vector 1 raised when unmasked", was_raised(1, 1), 1);
    check("other vectors", raised[2], 0);
    config_write(msix, control);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"configuration_space", configuration_space},
    {"bars_tell_their_size", bars_tell_their_size},
    {"registers_answer", registers_answer},
    {"dma_moves_bytes_both_ways", dma_moves_bytes_both_ways},
    {"dma_to_nowhere_is_a_status", dma_to_nowhere_is_a_status},
    {"dma_needs_bus_mastering", dma_needs_bus_mastering},
    {"msix_reaches_the_local_apic", msix_reaches_the_local_apic},
};

void run(void)
{
    u32 counts[2] = {0, 0};
    for (u32 device = 0; device < 32; device++) {
        card = device << 11;
        if (config_read(ID) == 0xf9a01234)
            break;
    }
    for (u32 index = 0; index < sizeof tests / sizeof *tests; index++) {
        say("begin ");
        say(tests[index].name);
        good = 1;
        say("\n");
        tests[index].run();
        say(good ? "passed " : "failed ");
        say(tests[index].name);
        say("\n");
        counts[good]++;
    }
    say("done ");
    say_number(counts[1]);
    say(" ");
    say_number(counts[0]);
    say("\n");
}
