"""Names that are reserved in C."""

import re

from foretrace._native.elements import helper_names

_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case char compl complex const
    constexpr continue default do double else enum extern false float for goto if imaginary inline
    int long main not not_eq nullptr or or_eq register restrict return short signed sizeof static
    static_assert struct switch thread_local true typedef typeof typeof_unqual union unsigned void
    volatile while xor xor_eq
"""

_SYSTEMS = "far linux near unix"
"""Macros of some systems' compilers."""

_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp exp10 exp2
    expm1 fabs fdim finite floor fma fmax fmin fmod frexp gamma hypot ilogb isinf isnan j0 j1 jn
    ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter
    nexttoward pow pow10 remainder remquo rint round scalb scalbln scalbn significand sin sincos
    sinh sqrt tan tanh tgamma trunc y0 y1 yn
    cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog conj cpow cproj
    creal csin csinh csqrt ctan ctanh
"""
"""Functions that also exist for float and long double, with the suffixes `f` and `l`."""

_LIBRARY = """
    abort abs asctime assert atexit atof atoi atol atoll bcmp bcopy bsearch btowc bzero calloc
    clearerr clock ctime difftime div errno exit explicit_bzero fclose feclearexcept fegetenv
    fegetexceptflag fegetround feholdexcept feof feraiseexcept ferror fesetenv fesetexceptflag
    fesetround fetestexcept feupdateenv fflush ffs ffsl ffsll fgetc fgetpos fgets fgetwc fgetws
    fopen fpclassify fprintf fputc fputs fputwc fputws fread free freopen fscanf fseek fsetpos ftell
    fwide fwprintf fwrite fwscanf getc getchar getenv gets getwc getwchar gmtime imaxabs imaxdiv
    index isfinite isgreater isgreaterequal isless islessequal islessgreater isnormal isunordered
    jmp_buf labs ldiv lgamma_r lgammaf_r lgammal_r llabs lldiv localeconv localtime longjmp malloc
    math_errhandling mblen mbrlen mbrtowc mbsinit mbsrtowcs mbstowcs mbtowc memccpy memchr memcmp
    memcpy memmem memmove memrchr memset memset_s mktime offsetof perror printf putc putchar puts
    putwc putwchar qsort raise rand realloc remove rename rewind rindex scanf setbuf setjmp
    setlocale setvbuf signal signbit signgam snprintf sprintf srand sscanf stderr stdin stdout
    stpcpy stpncpy strcasecmp strcasecmp_l strcasestr strcat strchr strcmp strcoll strcoll_l strcpy
    strcspn strdup strerror strerror_l strerror_r strftime strlcat strlcpy strlen strmode
    strncasecmp strncasecmp_l strncat strncmp strncpy strndup strnlen strnstr strpbrk strrchr strsep
    strsignal strspn strstr strtod strtof strtoimax strtok strtok_r strtol strtold strtoll strtoul
    strtoull strtoumax strxfrm strxfrm_l swab swprintf swscanf system time tmpfile tmpnam tolower
    toupper towctrans towlower towupper ungetc ungetwc va_arg va_copy va_end va_list va_start
    vfprintf vfscanf vfwprintf vfwscanf vprintf vscanf vsnprintf vsprintf vsscanf vswprintf vswscanf
    vwprintf vwscanf wcrtomb wcscat wcschr wcscmp wcscoll wcscpy wcscspn wcsftime wcslen wcsncat
    wcsncmp wcsncpy wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod wcstof wcstoimax wcstok wcstol
    wcstold wcstoll wcstombs wcstoul wcstoull wcstoumax wcsxfrm wctob wctomb wctrans wctype wmemchr
    wmemcmp wmemcpy wmemmove wmemset wprintf wscanf
"""
"""Names in the C99 library, and further names in <math.h> and <string.h> of common systems."""

_FORMS = re.compile(
    r"\w+_t|isw?(alnum|alpha|blank|cntrl|ctype|digit|graph|lower|print|punct|space|upper|xdigit)"
    rf"|({'|'.join(_MATH.split())})[fl]?"
    # Names in a program that do not begin with the program's own name.
    rf"|({'|'.join(helper_names())})f?|run(_step|_predict|_reset)?|initial\d+"
    r"|(step|predict|reset)_numbers\d+"
)

_RESERVED = frozenset(f"{_KEYWORDS} {_SYSTEMS} {_LIBRARY}".split())


def identifier(name: str) -> str:
    """Return the name of a program's C type, which is the prefix of its functions.

    >>> identifier("model"), identifier("int"), identifier("expf")
    ('model', 'int_model', 'expf_model')
    """
    taken = name in _RESERVED or _FORMS.fullmatch(name)
    return f"{name}_model" if taken else name
