/* Waits for a job in the place of `pharoah run`, with a few pages of memory: what waiter.py does, and says.
 *
 *     waiter JOB SIGNALS ASKED COMMAND...
 *
 * It needs no library, so that it runs on every Linux of its machine, and holds nothing but its stack. `make waiter`
 * compiles it; tests/process/test_waiter.py runs both waiters through the same cases.
 */

typedef unsigned long word;

#if defined(__x86_64__)
enum { OPENAT = 257, CLOSE = 3, IOCTL = 16, KILL = 62, WAIT4 = 61, GETPID = 39, GETPGID = 121, EXECVE = 59, EXIT = 231,
       CLOCK_GETTIME = 228, SIGACTION = 13, SIGPROCMASK = 14, SIGTIMEDWAIT = 128, PRLIMIT = 302 };
static long call(long number, word a, word b, word c, word d, word e)
{
    long result;
    register word fourth __asm__("r10") = d, fifth __asm__("r8") = e;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start: mov %rsp, %rdi\nand $-16, %rsp\ncall begin\n");
#elif defined(__aarch64__)
enum { OPENAT = 56, CLOSE = 57, IOCTL = 29, KILL = 129, WAIT4 = 260, GETPID = 172, GETPGID = 155, EXECVE = 221,
       EXIT = 94, CLOCK_GETTIME = 113, SIGACTION = 134, SIGPROCMASK = 135, SIGTIMEDWAIT = 137, PRLIMIT = 261 };
static long call(long number, word a, word b, word c, word d, word e)
{
    register word x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                  x3 __asm__("x3") = d, x4 __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return (long)x0;
}
__asm__(".globl _start\n_start: mov x0, sp\nbl begin\n");
#else
#error "no system calls are known for this machine"
#endif

enum { HUP = 1, INT = 2, QUIT = 3, KILLED = 9, TERM = 15, CHLD = 17, STOPPED = 19 };
enum { NO_HANG = 1, UNBLOCK = 1, MASK_BYTES = 8, LIMIT_CORE = 4, TIOCGPGRP = 0x540f, HERE = -100 };
enum { READ_NO_CONTROL_CLOSE = 00 | 0400 | 02000000 }; /* O_RDONLY | O_NOCTTY | O_CLOEXEC */
enum { MOST_WORDS = 128 };

static word number_of(const char *text, word base)
{
    word found = 0;
    for (; *text; text++)
        found = found * base + (*text <= '9' ? *text - '0' : *text - 'a' + 10);
    return found;
}

static char *text_of(word number, char *end)
{
    *--end = 0;
    do
        *--end = '0' + number % 10;
    while (number /= 10);
    return end;
}

static word now_nanoseconds(void)
{
    word since[2] = {0, 0};
    call(CLOCK_GETTIME, 0, (word)since, 0, 0, 0);
    return since[0] * 1000000000ul + since[1];
}

static int is_in_foreground(void)
{
    int group = 0;
    long terminal = call(OPENAT, (word)HERE, (word) "/dev/tty", READ_NO_CONTROL_CLOSE, 0, 0);
    if (terminal < 0)
        return 0;
    long failed = call(IOCTL, terminal, TIOCGPGRP, (word)&group, 0, 0);
    call(CLOSE, terminal, 0, 0, 0, 0);
    return !failed && group == call(GETPGID, 0, 0, 0, 0, 0);
}

static void end_as(int status)
{
    word number = status & 0x7f, mask = 1ul << (number - 1), limit[2], of_default[4] = {0, 0, 0, 0};
    if (number) {
        /* The job has left a core dump where one is wanted; ours would only hide it. */
        if (!call(PRLIMIT, 0, LIMIT_CORE, 0, (word)limit, 0)) {
            limit[0] = 0;
            call(PRLIMIT, 0, LIMIT_CORE, (word)limit, 0, 0);
        }
        if (number != KILLED && number != STOPPED)
            call(SIGACTION, number, (word)of_default, 0, MASK_BYTES, 0);
        call(SIGPROCMASK, UNBLOCK, (word)&mask, 0, MASK_BYTES, 0);
        call(KILL, call(GETPID, 0, 0, 0, 0, 0), number, 0, 0, 0);
    }
    call(EXIT, number ? 128 + number : (status >> 8) & 0xff, 0, 0, 0, 0);
}

__attribute__((used, noreturn)) void begin(word *stack)
{
    word count = stack[0];
    char **words = (char **)(stack + 1), **environment = words + count + 1;
    if (count < 4 || count > MOST_WORDS)
        call(EXIT, 2, 0, 0, 0, 0);
    word job = number_of(words[1], 10), signals = number_of(words[2], 16), asked = number_of(words[3], 10);
    word wanted = signals | 1ul << (CHLD - 1);
    int status = 0;
    for (;;) {
        long ended = call(WAIT4, job, (word)&status, NO_HANG, 0, 0);
        if (ended) { /* below 0: somebody else has waited for it */
            status = ended < 0 ? 0 : status;
            break;
        }
        long number = call(SIGTIMEDWAIT, (word)&wanted, 0, 0, MASK_BYTES, 0);
        if (number <= 0 || number == CHLD)
            continue;
        if (!asked && (number == TERM || number == INT || number == HUP))
            asked = now_nanoseconds();
        if (!((number == INT || number == QUIT) && is_in_foreground()))
            call(KILL, job, number, 0, 0, 0);
    }
    if (count > 4) {
        char *command[MOST_WORDS + 3], of_status[24], of_asked[24];
        word at = 0;
        for (; at < count - 4; at++)
            command[at] = words[at + 4];
        command[at++] = text_of(status, of_status + sizeof of_status);
        command[at++] = text_of(asked, of_asked + sizeof of_asked);
        command[at] = 0;
        call(EXECVE, (word)command[0], (word)command, (word)environment, 0, 0);
    }
    end_as(status);
    __builtin_unreachable();
}
