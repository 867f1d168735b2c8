/* What costs most for each line of a log, in one pass each; `native.py` calls it, and everything works without it.
 *
 * No Python headers, no state: all memory belongs to the caller.  A table is open addressing with linear probing, `mask`
 * one less than its size; key 0 is an empty place, so no hash is 0.  Each function gives what its twin in Python gives.
 */
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

typedef const uint8_t *Bytes;

#define VERSION 6
#define MOST_LINE 8192 /* a longer line has no form */
#define MOST_FORM 1024
#define MOST_HOST 255

EXPORT int64_t allready_version(void) { return VERSION; }

static inline uint64_t word_at(Bytes p) {
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

static inline uint64_t mixed(uint64_t a, uint64_t b) {
    unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

/* `p` can be read up to the next multiple of 8 after `n`, and is 0 there. */
static inline uint64_t hash_of(Bytes p, int64_t n, const uint64_t *secret) {
    uint64_t h = secret[0] ^ (uint64_t)n;
    for (int64_t i = 0; i < n; i += 8) h = mixed(h ^ word_at(p + i), secret[1] ^ (uint64_t)i);
    h = mixed(h ^ secret[2], secret[3]);
    return h ? h : 1;
}

static inline int64_t found_at(uint64_t hash, const uint64_t *keys, const int64_t *values, uint64_t mask) {
    for (uint64_t at = hash & mask; keys[at]; at = (at + 1) & mask)
        if (keys[at] == hash) return values[at];
    return -1;
}

/* Puts `num` hashes with their values into a table that has room for them. */
EXPORT void allready_insert(const uint64_t *hashes, const int64_t *given, int64_t num, uint64_t *keys, int64_t *values,
                            uint64_t mask) {
    for (int64_t i = 0; i < num; i++) {
        uint64_t at = hashes[i] & mask;
        while (keys[at] && keys[at] != hashes[i]) at = (at + 1) & mask;
        keys[at] = hashes[i];
        values[at] = given[i];
    }
}

/* The value of each hash, -1 where it is not known. */
EXPORT void allready_find(const uint64_t *hashes, int64_t num, const uint64_t *keys, const int64_t *values, uint64_t mask,
                          int64_t *found) {
    for (int64_t i = 0; i < num; i++) found[i] = found_at(hashes[i], keys, values, mask);
}

/* How many newlines the first `size` bytes have. */
EXPORT int64_t allready_count(Bytes data, int64_t size) {
    int64_t num = 0, done = 0;
    while (done < size) {
        int64_t end = size - done < 255 ? size : done + 255;
        uint8_t some = 0; /* so narrow that the compiler takes many at a time */
        for (; done < end; done++) some = (uint8_t)(some + (data[done] == '\n'));
        num += some;
    }
    return num;
}

/* Where each of them stands. */
EXPORT int64_t allready_newlines(Bytes data, int64_t size, int64_t *ends) {
    int64_t num = 0;
    Bytes end = data + size;
    for (Bytes p = data; p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++) ends[num++] = p - data;
    return num;
}

static inline uint32_t short_word_at(Bytes p) {
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

/* Literals that are told by one of their words of four bytes.  `words` in order; the entries of word `w` are those from
 * `firsts[w]` on: which literal it is, and how far the word stands in it.  `bits`: one for each hash of a word. */
typedef struct {
    int64_t factor, down;
    const uint8_t *bits;
    const uint32_t *words;
    int64_t num_words;
    const int64_t *firsts, *offsets, *literals;
    Bytes text;
    const int64_t *begins, *sizes;
} Literals;

static inline int64_t word_number(uint32_t word, const uint32_t *words, int64_t num) {
    int64_t low = 0;
    for (int64_t high = num; low < high;) {
        int64_t middle = (low + high) / 2;
        if (words[middle] < word)
            low = middle + 1;
        else
            high = middle;
    }
    return low < num && words[low] == word ? low : -1;
}

/* Looks at the words of `data` from number `first` on for literals: where each begins and which it is, until there is no
 * room for the entries of one more word.  Where to go on; the number of words where it came to the end. */
EXPORT int64_t allready_literals(Bytes data, int64_t size, int64_t phase, int64_t first, const Literals *known,
                                 int64_t room, int64_t *places, int64_t *which, int64_t *num_found) {
    const uint32_t factor = (uint32_t)known->factor;
    const int64_t num = (size - phase) / 4;
    int64_t found = 0, i = first;
    for (; i < num; i++) {
        uint32_t word = short_word_at(data + phase + 4 * i), hash = word * factor >> known->down;
        if (!(known->bits[hash >> 3] >> (hash & 7) & 1)) continue;
        int64_t number = word_number(word, known->words, known->num_words);
        if (number < 0) continue;
        int64_t entry = known->firsts[number], end = known->firsts[number + 1];
        if (found + end - entry > room) break;
        for (; entry < end; entry++) {
            int64_t literal = known->literals[entry], place = phase + 4 * i - known->offsets[entry];
            if (place < 0 || place + known->sizes[literal] > size) continue;
            if (memcmp(data + place, known->text + known->begins[literal], (size_t)known->sizes[literal])) continue;
            places[found] = place;
            which[found++] = literal;
        }
    }
    *num_found = found;
    return i;
}

/* Copies lines with their newlines one behind the other; where each begins, and how many bytes in all. */
EXPORT int64_t allready_splice(Bytes data, const int64_t *starts, const int64_t *lengths, const int64_t *at,
                               int64_t num, uint8_t *out, int64_t *places) {
    int64_t size = 0;
    for (int64_t i = 0; i < num; i++) {
        int64_t length = lengths[at[i]] + 1;
        places[i] = size;
        memcpy(out + size, data + starts[at[i]], (size_t)length);
        size += length;
    }
    return size;
}

static inline int is_digit(uint8_t c) { return (uint8_t)(c - '0') < 10; }
static inline int is_hex(uint8_t c) { return is_digit(c) || (uint8_t)(c - 'a') < 6; }

/* Copies a line without its digits; `has` tells whether it has a carriage return (1) or "0x" (2).  How many bytes. */
typedef int64_t (*Strip)(Bytes p, int64_t length, uint8_t *out, unsigned *has);

static int64_t strip(Bytes p, int64_t length, uint8_t *out, unsigned *has) {
    int64_t num = 0;
    unsigned found = 0;
    uint8_t before = 0;
    for (int64_t i = 0; i < length; i++) {
        uint8_t c = p[i];
        out[num] = c;
        num += !is_digit(c);
        found |= (unsigned)(c == '\r') | (unsigned)((c == 'x') & (before == '0')) << 1;
        before = c;
    }
    *has = found;
    return num;
}

#if defined(__x86_64__)
#include <tmmintrin.h>

static uint64_t packing[256]; /* for each set of eight bytes that go: where the others come from */

__attribute__((constructor)) static void fill_packing(void) {
    for (int set = 0; set < 256; set++) {
        uint8_t from[8], num = 0;
        memset(from, 0x80, 8);
        for (uint8_t i = 0; i < 8; i++)
            if (!(set >> i & 1)) from[num++] = i;
        memcpy(packing + set, from, 8);
    }
}

/* Sixteen bytes at a time; reads and writes up to fifteen more than there are. */
__attribute__((target("ssse3"))) static int64_t strip_by_16(Bytes p, int64_t length, uint8_t *out, unsigned *has) {
    int64_t num = 0;
    unsigned returns = 0, hexes = 0, zero_before = 0;
    for (int64_t i = 0; i < length; i += 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)(p + i));
        unsigned within = length - i < 16 ? (1u << (length - i)) - 1 : 0xFFFFu;
        __m128i shifted = _mm_add_epi8(some, _mm_set1_epi8(0x50)); /* '0' becomes the least signed byte */
        unsigned gone = (unsigned)_mm_movemask_epi8(_mm_cmplt_epi8(shifted, _mm_set1_epi8(-128 + 10)));
        unsigned zeros = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_set1_epi8('0')));
        unsigned crosses = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_set1_epi8('x')));
        returns |= (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_set1_epi8('\r'))) & within;
        hexes |= crosses & (zeros << 1 | zero_before) & within;
        zero_before = zeros >> 15;
        gone |= ~within;
        unsigned low = gone & 0xFF, high = gone >> 8 & 0xFF;
        __m128i half = _mm_loadl_epi64((const __m128i *)(packing + low));
        _mm_storel_epi64((__m128i *)(out + num), _mm_shuffle_epi8(some, half));
        num += 8 - __builtin_popcount(low);
        half = _mm_loadl_epi64((const __m128i *)(packing + high));
        _mm_storel_epi64((__m128i *)(out + num), _mm_shuffle_epi8(_mm_srli_si128(some, 8), half));
        num += 8 - __builtin_popcount(high);
    }
    *has = (unsigned)(returns != 0) | (unsigned)(hexes != 0) << 1;
    return num;
}

static Strip best_strip(void) { return __builtin_cpu_supports("ssse3") ? strip_by_16 : strip; }
#else
static Strip best_strip(void) { return strip; }
#endif

/* A line without its numbers, `0x1f` and `17` alike; -1 where it has a carriage return or is too long. */
static int64_t form_of(Bytes p, int64_t length, uint8_t *out, Strip without_digits) {
    unsigned has = 0;
    int64_t num = without_digits(p, length, out, &has);
    if (has & 1) return -1;
    if (has & 2) {
        num = 0;
        for (int64_t i = 0; i < length;) {
            uint8_t c = p[i];
            if (!is_digit(c)) {
                out[num++] = c;
                i++;
            } else if (c == '0' && i + 2 < length && p[i + 1] == 'x' && is_hex(p[i + 2])) {
                for (i += 2; i < length && is_hex(p[i]); i++) {}
            } else {
                for (i++; i < length && is_digit(p[i]); i++) {}
            }
        }
    }
    if (num > MOST_FORM) return -1;
    memset(out + num, 0, 8);
    return num;
}

/* `forms.Forms`: numbers by hash, and what each number is, in `kinds`. */
typedef struct {
    const uint64_t *secret, *keys;
    const int64_t *values;
    uint64_t mask;
    const uint8_t *kinds;
} Known;

#define MARKED 4 /* the only kind that a segment may have */

/* What is between carriage returns: of the new ones `most` at most as hash, place and length. */
typedef struct {
    int64_t num, most, num_new;
    uint64_t *hashes;
    int64_t *places, *lengths;
} Segments;

/* The hash of a line without its numbers; 0 where it can have none. */
static inline uint64_t form_hash(Bytes p, int64_t length, uint8_t *form, Strip without_digits, const uint64_t *secret) {
    int64_t size = length < MOST_LINE ? form_of(p, length, form, without_digits) : -1;
    return size < 0 ? 0 : hash_of(form, size, secret);
}

/* What all segments of a line are together: 1 of no interest, 2 one may say an iteration, 0 anything else, -1 not known. */
static int64_t segmented(Bytes data, Bytes line, int64_t length, uint8_t *form, Strip without_digits, const Known *known,
                         Segments *segments) {
    int is_known = 1, is_marked = 0;
    for (int64_t at = 0; at < length;) {
        Bytes next = memchr(line + at, '\r', (size_t)(length - at));
        int64_t size = next ? next - line - at : length - at;
        if (size) {
            uint64_t hash = form_hash(line + at, size, form, without_digits, known->secret);
            int64_t number = hash ? found_at(hash, known->keys, known->values, known->mask) : 0;
            segments->num++;
            if (number < 0) {
                is_known = 0;
                if (segments->num_new < segments->most) {
                    segments->hashes[segments->num_new] = hash;
                    segments->places[segments->num_new] = line + at - data;
                    segments->lengths[segments->num_new] = size;
                }
                segments->num_new++;
            } else if (known->kinds[number] & ~MARKED) {
                return 0;
            } else {
                is_marked |= known->kinds[number];
            }
        }
        at += size + 1;
    }
    return is_known ? 1 + !!is_marked : -1;
}

/* The number of each line's form: 0 where it can have none, -1 where it is new.  A line with carriage returns has that of
 * `segmented`, and the hash 0.  How many are new. */
EXPORT int64_t allready_forms(Bytes data, const int64_t *starts, const int64_t *lengths, const int64_t *at,
                              int64_t num, const Known *known, uint64_t *hashes, int64_t *numbers, Segments *segments) {
    uint8_t form[MOST_LINE + 32];
    int64_t num_new = 0;
    const Strip without_digits = best_strip();
    for (int64_t i = 0; i < num; i++) {
        int64_t length = lengths[at[i]];
        Bytes line = data + starts[at[i]];
        hashes[i] = form_hash(line, length, form, without_digits, known->secret);
        if (hashes[i])
            numbers[i] = found_at(hashes[i], known->keys, known->values, known->mask);
        else if (memchr(line, '\r', (size_t)length))
            numbers[i] = segmented(data, line, length, form, without_digits, known, segments);
        else
            numbers[i] = 0;
        num_new += numbers[i] < 0;
    }
    return num_new;
}

static inline int is_host(uint8_t c) {
    return is_digit(c) || (uint8_t)((c | 0x20) - 'a') < 26 || c == '_' || c == '.' || c == '-';
}

/* How many digits stand before `end`, one more than ten at most. */
static inline int64_t digits_before(Bytes p, int64_t end) {
    int64_t at = end;
    while (at > 0 && end - at <= 10 && is_digit(p[at - 1])) at--;
    return end - at;
}

/* The "host:pid" before the word NCCL: where it begins, and its end in `stop`; -1 without one. */
static int64_t process_in(Bytes p, int64_t length, int64_t *stop) {
    int64_t word = -1;
    for (Bytes q = p; (q = memchr(q, 'N', (size_t)(p + length - q))); q++) {
        if (p + length - q < 5) return -1;
        if (!memcmp(q, "NCCL ", 5)) {
            word = q - p;
            break;
        }
    }
    for (int64_t blank = word - 1; blank > 3; blank--) {
        if (p[blank] != ' ') continue;
        int64_t thread = digits_before(p, blank);
        if (thread < 1 || thread > 10 || blank - thread < 1 || p[blank - thread - 1] != ':') continue;
        int64_t end = blank - thread - 1, pid = digits_before(p, end);
        if (pid < 1 || pid > 10 || end - pid < 1 || p[end - pid - 1] != ':') continue;
        int64_t host = end - pid - 1, begin = host;
        while (begin > 0 && is_host(p[begin - 1])) begin--;
        *stop = end;
        return begin == host || host - begin > MOST_HOST ? -1 : begin;
    }
    return -1;
}

/* The number of the process that each line of NCCL's names: 0 for none, -1 where it is new.  How many are new. */
EXPORT int64_t allready_processes(Bytes data, const int64_t *starts, const int64_t *lengths, const int64_t *at,
                                  int64_t num, const uint64_t *secret, const uint64_t *keys, const int64_t *values,
                                  uint64_t mask, uint64_t *hashes, int64_t *numbers) {
    uint8_t name[MOST_HOST + 32];
    int64_t num_new = 0;
    for (int64_t i = 0; i < num; i++) {
        Bytes line = data + starts[at[i]];
        int64_t end = 0, begin = process_in(line, lengths[at[i]], &end);
        hashes[i] = 0;
        numbers[i] = 0;
        if (begin < 0) continue;
        memcpy(name, line + begin, (size_t)(end - begin));
        memset(name + end - begin, 0, 8);
        hashes[i] = hash_of(name, end - begin, secret);
        numbers[i] = found_at(hashes[i], keys, values, mask);
        num_new += numbers[i] < 0;
    }
    return num_new;
}

/* Gathers equal keys, the groups in the order in which they begin: `order` has the indexes group by group, `begins` where
 * each group begins there.  `scratch` is an empty table, and is one again.  How many groups. */
EXPORT int64_t allready_groups(const int64_t *given, int64_t num, uint64_t *scratch, int64_t *values, uint64_t mask,
                               int64_t *which, int64_t *order, int64_t *begins) {
    int64_t groups = 0;
    for (int64_t i = 0; i < num; i++) {
        uint64_t key = (uint64_t)given[i] + 1, at = mixed(key, 0x9E3779B97F4A7C15u) & mask;
        while (scratch[at] && scratch[at] != key) at = (at + 1) & mask;
        if (!scratch[at]) {
            scratch[at] = key;
            values[at] = groups;
            begins[groups++] = 0;
        }
        which[i] = values[at];
        begins[which[i]]++;
    }
    memset(scratch, 0, (size_t)(mask + 1) * sizeof *scratch);
    for (int64_t group = 0, begin = 0; group < groups; group++) {
        int64_t count = begins[group];
        begins[group] = begin;
        begin += count;
    }
    for (int64_t i = 0; i < num; i++) order[begins[which[i]]++] = i;
    for (int64_t group = groups - 1; group > 0; group--) begins[group] = begins[group - 1];
    if (groups) begins[0] = 0;
    return groups;
}

static inline int is_between(uint8_t c) {
    return c == ' ' || c == '\t' || c == '"' || c == '\'' || c == ':' || c == '=' || c == '#' || c == '|' || c == '[' ||
           c == '(';
}

static inline int goes_on(uint8_t c) {
    return is_digit(c) || (uint8_t)((c | 0x20) - 'a') < 26 || c == '%' || c == '_';
}

static inline uint32_t small_word(Bytes p) {
    uint32_t w;
    memcpy(&w, p, 4);
    return w | 0x20202020u;
}

/* The number that a marker's word says, -1 where it says none. */
static int64_t marked_number(Bytes p, int64_t left, int64_t most_between, int64_t most_digits) {
    int64_t at = 4, num = 0, value = 0;
    if (left >= 9 && (p[0] | 0x20) == 'i' && small_word(p + 4) == small_word((Bytes) "atio") && (p[8] | 0x20) == 'n') at = 9;
    int64_t between = at;
    while (at < left && is_between(p[at])) at++;
    if (at - between > most_between) return -1;
    for (; at < left && is_digit(p[at]); at++) {
        if (++num > most_digits) return -1;
        value = value * 10 + p[at] - '0';
    }
    if (!num) return -1;
    if (at < left && goes_on(p[at])) return -1;
    if (at + 1 < left && (p[at] == '.' || p[at] == ',') && is_digit(p[at + 1])) return -1;
    return value;
}

/* The first marker of each line from `first` on: its line, place and number; how many, in `found`.  `keys`: what stands
 * before a word, sixteen bytes with their digits as 0, whether that is good.  Ends with `num`, or with the index of a line
 * where that is not known; then `place` is that of the word, and `hash` what to put into the table. */
EXPORT int64_t allready_marks(Bytes data, const int64_t *starts, const int64_t *lengths, const int64_t *at, int64_t num,
                              int64_t first, int64_t most_between, int64_t most_digits, const uint64_t *secret,
                              const uint64_t *keys, const int64_t *values, uint64_t mask, int64_t *lines,
                              int64_t *places, int64_t *numbers, int64_t *found, int64_t *place, uint64_t *hash) {
    const uint32_t step = small_word((Bytes) "step"), iter = small_word((Bytes) "iter");
    for (int64_t i = first; i < num; i++) {
        Bytes line = data + starts[at[i]];
        int64_t length = lengths[at[i]];
        for (int64_t j = 0; j + 4 < length; j++) {
            uint8_t c = line[j] | 0x20;
            if (c != 's' && c != 'i') continue;
            uint32_t word = small_word(line + j);
            if (word != step && word != iter) continue;
            int64_t number = marked_number(line + j, length - j, most_between, most_digits);
            if (number < 0) continue;
            uint8_t before[16];
            for (int64_t k = 0; k < 16; k++) {
                uint8_t one = j - 16 + k < 0 ? '\n' : line[j - 16 + k];
                before[k] = is_digit(one) ? '0' : one;
            }
            uint64_t h = hash_of(before, 16, secret);
            int64_t good = found_at(h, keys, values, mask);
            if (good < 0) {
                *place = starts[at[i]] + j;
                *hash = h;
                return i;
            }
            if (!good) continue;
            lines[*found] = i;
            places[*found] = starts[at[i]] + j;
            numbers[(*found)++] = number;
            break;
        }
    }
    return num;
}

/* `templates.Layout`; `date`, `fraction`, `number` and `counter` (before which "opCount " stands) are columns, -1
 * without one. */
typedef struct {
    const uint64_t *shift, *mask;
    int64_t width;
    const uint64_t *keys;
    const int64_t *ids;
    uint64_t table_mask;
    const int64_t *checked, *classes;
    int64_t num_checked, date, fraction, fraction_end, number, number_end, counter, hits;
} Layout;

static inline int64_t decimal(Bytes p, int64_t start, int64_t end) {
    int64_t value = 0;
    for (int64_t i = start; i < end; i++) value = value * 10 + (p[i] - '0');
    return value;
}

/* Seconds since 1970; not a number where there is no such moment. */
static double moment(Bytes p, int64_t fraction, int64_t fraction_end, Bytes line) {
    static const int64_t days_of[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const int64_t columns[] = {0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18};
    const double none = __builtin_nan("");
    for (int i = 0; i < 14; i++)
        if (!is_digit(p[columns[i]])) return none;
    int64_t year = decimal(p, 0, 4), month = decimal(p, 5, 7), day = decimal(p, 8, 10);
    int64_t hour = decimal(p, 11, 13), minute = decimal(p, 14, 16), second = decimal(p, 17, 19);
    if (month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 60 || year < 1) return none;
    int leap = (year % 4 == 0) && (year % 100 != 0 || year % 400 == 0);
    if (day > days_of[month - 1] + (month == 2 && leap)) return none;
    int64_t y = year - (month <= 2);
    int64_t since_march = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t days = y * 365 + y / 4 - y / 100 + y / 400 + since_march - 719468;
    double seconds = (double)(days * 86400 + hour * 3600 + minute * 60 + second);
    if (fraction > 0) {
        double scale = 1.0;
        int64_t end = fraction_end < fraction + 9 ? fraction_end : fraction + 9;
        for (int64_t i = fraction; i < end; i++) {
            if (!is_digit(line[i])) return none;
            scale *= 10.0;
        }
        seconds += (double)decimal(line, fraction, end) / scale;
    }
    return seconds;
}

static int64_t looked_up(Layout *layout, Bytes line, const uint64_t *weights) {
    uint64_t hash = 0;
    if (layout->counter >= 0 && word_at(line + layout->counter - 8) != word_at((Bytes) "opCount ")) return -1;
    for (int64_t i = 0; i < layout->width; i++) {
        uint64_t w = (word_at(line + 8 * i) + layout->shift[i]) & layout->mask[i];
        w ^= w >> 32;
        w ^= w >> 16;
        hash += w * weights[i];
    }
    int64_t id = found_at(hash ? hash : 1, layout->keys, layout->ids, layout->table_mask);
    if (id < 0) return -1;
    for (int64_t i = 0; i < layout->num_checked; i++) {
        uint8_t c = line[layout->checked[i]];
        if (layout->classes[i] ? !is_hex(c) : !is_digit(c)) return -1;
    }
    return id;
}

/* The template of each line, -1 where it is not known; its time and number where its layout has one.  The layouts of
 * length n are `layouts[firsts[n]]` to before `layouts[firsts[n + 1]]`; of longer lines there are none. */
EXPORT void allready_match(Bytes data, const int64_t *starts, const int64_t *lengths, int64_t num, Layout *layouts,
                           const int64_t *firsts, int64_t longest, const uint64_t *weights, int64_t *ids,
                           double *times, int64_t *numbers) {
    for (int64_t i = 0; i < num; i++) {
        int64_t length = lengths[i];
        ids[i] = -1;
        if (length > longest) continue;
        Bytes line = data + starts[i];
        for (int64_t l = firsts[length]; l < firsts[length + 1]; l++) {
            Layout *layout = layouts + l;
            int64_t id = looked_up(layout, line, weights);
            if (id < 0) continue;
            ids[i] = id;
            layout->hits++;
            if (layout->date >= 0) times[i] = moment(line + layout->date, layout->fraction, layout->fraction_end, line);
            if (layout->number >= 0) numbers[i] = decimal(line, layout->number, layout->number_end);
            break;
        }
    }
}

/* The rest: lines out of what collectors of logs put around them (`inputs/envelopes.py`).  Strict: what is not plainly
 * JSON, UTF-8 or an escape of a terminal is left to Python, which decides about it. */

static inline int is_continuation(Bytes p) { return (*p & 0xc0) == 0x80; }

/* How many bytes the character has that begins here, which is none of ASCII; 0 where it is not UTF-8. */
static int64_t character(Bytes p, Bytes end) {
    int64_t n = *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    if (!n || end - p < n) return 0;
    for (int64_t i = 1; i < n; i++)
        if (!is_continuation(p + i)) return 0;
    if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f)) return 0; /* too long a form; a surrogate */
    if ((*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f)) return 0;
    return n;
}

/* The first byte from here on that ends a string or has a meaning in it: a quote, a backslash, control or not ASCII. */
static inline Bytes plain_end(Bytes p, Bytes end) {
#if defined(__x86_64__)
    for (; end - p >= 16; p += 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)p);
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(some, _mm_set1_epi8('"')), _mm_cmpeq_epi8(some, _mm_set1_epi8('\\')));
        int bits = _mm_movemask_epi8(_mm_or_si128(found, _mm_cmplt_epi8(some, _mm_set1_epi8(' ')))); /* signed */
        if (bits) return p + __builtin_ctz((unsigned)bits);
    }
#endif
    while (p < end && *p >= ' ' && *p < 0x80 && *p != '"' && *p != '\\') p++;
    return p;
}

/* The number that four hexadecimal digits make; -1 where they are others. */
static int32_t code_unit(Bytes p, Bytes end) {
    int32_t unit = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t low = p[i] | 0x20;
        if (!is_digit(p[i]) && (uint8_t)(low - 'a') > 5) return -1;
        unit = unit << 4 | (is_digit(p[i]) ? p[i] - '0' : low - 'a' + 10);
    }
    return unit;
}

/* A string from behind its first quote to its last one, or 0; whether it has escapes. */
static Bytes string_end(Bytes p, Bytes end, int *has_escapes) {
    *has_escapes = 0;
    while ((p = plain_end(p, end)) < end && *p != '"') {
        if (*p == '\\') {
            *has_escapes = 1;
            if (end - p < 2) return 0;
            if (p[1] == 'u') {
                int32_t unit = code_unit(p + 2, end);
                if (unit < 0 || (unit >= 0xd800 && unit < 0xe000)) return 0;
                p += 6;
            } else {
                if (!memchr("\"\\/bfnrt", p[1], 8)) return 0;
                p += 2;
            }
        } else {
            int64_t n = *p < 0x80 ? 0 : character(p, end);
            if (!n) return 0;
            p += n;
        }
    }
    return p < end ? p : 0;
}

static inline Bytes past_blanks(Bytes p, Bytes end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p;
}

static inline Bytes past_digits(Bytes p, Bytes end) {
    while (p < end && is_digit(*p)) p++;
    return p;
}

static Bytes number_end(Bytes p, Bytes end) {
    if (p < end && *p == '-') p++;
    if (p >= end || !is_digit(*p)) return 0;
    p = *p == '0' ? p + 1 : past_digits(p, end);
    if (p < end && *p == '.') {
        if (++p >= end || !is_digit(*p)) return 0;
        p = past_digits(p, end);
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        if (p >= end || !is_digit(*p)) return 0;
        p = past_digits(p, end);
    }
    return p;
}

/* Behind a value of any kind, or 0: objects and arrays in each other to a depth. */
static Bytes value_end(Bytes p, Bytes end, int depth) {
    static const char *const WORDS[] = {"true", "false", "null"};
    int has_escapes;
    p = past_blanks(p, end);
    if (p >= end) return 0;
    if (*p == '"') return (p = string_end(p + 1, end, &has_escapes)) ? p + 1 : 0;
    if (*p != '{' && *p != '[') {
        for (int i = 0; i < 3; i++) {
            size_t n = strlen(WORDS[i]);
            if ((size_t)(end - p) >= n && !memcmp(p, WORDS[i], n)) return p + n;
        }
        return number_end(p, end);
    }
    uint8_t is_object = *p == '{', close = is_object ? '}' : ']';
    if (!depth) return 0;
    p = past_blanks(p + 1, end);
    if (p < end && *p == close) return p + 1;
    for (;;) {
        if (is_object) {
            if (p >= end || *p != '"' || !(p = string_end(p + 1, end, &has_escapes))) return 0;
            p = past_blanks(p + 1, end);
            if (p >= end || *p++ != ':') return 0;
        }
        if (!(p = value_end(p, end, depth - 1))) return 0;
        p = past_blanks(p, end);
        if (p >= end) return 0;
        if (*p == close) return p + 1;
        if (*p++ != ',') return 0;
        p = past_blanks(p, end);
    }
}

/* Copies a string without its escapes; where it ends in `out`. */
static uint8_t *unescaped(Bytes p, Bytes end, uint8_t *out) {
    static const uint8_t BY_LETTER[128] = {['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = 8,
                                           ['f'] = 12,  ['n'] = 10,    ['r'] = 13,  ['t'] = 9};
    while (p < end) {
        Bytes next = memchr(p, '\\', (size_t)(end - p));
        if (!next) next = end;
        memcpy(out, p, (size_t)(next - p));
        out += next - p;
        p = next;
        if (p >= end) break;
        if (p[1] != 'u') {
            *out++ = BY_LETTER[p[1]];
            p += 2;
            continue;
        }
        int32_t unit = code_unit(p + 2, end);
        p += 6;
        if (unit < 0x80) {
            *out++ = (uint8_t)unit;
        } else if (unit < 0x800) {
            *out++ = (uint8_t)(0xc0 | unit >> 6);
            *out++ = (uint8_t)(0x80 | (unit & 0x3f));
        } else {
            *out++ = (uint8_t)(0xe0 | unit >> 12);
            *out++ = (uint8_t)(0x80 | (unit >> 6 & 0x3f));
            *out++ = (uint8_t)(0x80 | (unit & 0x3f));
        }
    }
    return out;
}

enum { TEXT, TIME, STREAM, NUM_KEYS };

typedef struct {
    Bytes keys[NUM_KEYS]; /* of the text, the time, the stream; those of no length are not asked for */
    int64_t lengths[NUM_KEYS];
    int64_t has_ends; /* a text ends with its newline; otherwise it is a piece of a line */
} Record;

typedef struct {
    Bytes start, end;
    int has_escapes;
} Text;

/* The texts of the one object between `p` and `end`: whether it is one, each key at most once and with a string. */
static int texts_of(Bytes p, Bytes end, const Record *record, Text *texts) {
    for (int i = 0; i < NUM_KEYS; i++) texts[i].start = 0;
    if (p >= end || *p++ != '{') return 0;
    for (;;) {
        int key = 0;
        Text name, text;
        p = past_blanks(p, end);
        if (p >= end || *p != '"') return 0;
        name.start = p + 1;
        name.end = string_end(name.start, end, &name.has_escapes);
        if (!name.end || name.has_escapes) return 0;
        p = past_blanks(name.end + 1, end);
        if (p >= end || *p++ != ':') return 0;
        for (; key < NUM_KEYS; key++)
            if (record->lengths[key] && record->lengths[key] == name.end - name.start &&
                !memcmp(record->keys[key], name.start, (size_t)record->lengths[key]))
                break;
        if (key < NUM_KEYS) {
            p = past_blanks(p, end);
            if (p >= end || *p != '"' || texts[key].start) return 0;
            text.start = p + 1;
            text.end = string_end(text.start, end, &text.has_escapes);
            if (!text.end) return 0;
            texts[key] = text;
            p = text.end + 1;
        } else if (!(p = value_end(p, end, 16))) {
            return 0;
        }
        p = past_blanks(p, end);
        if (p >= end) return 0;
        if (*p == '}') return past_blanks(p + 1, end) == end;
        if (*p++ != ',') return 0;
    }
}

/* The lines of JSON records of one line each, up to the first that is another: how many bytes are read, written to
 * `out`, which has as much room, and how many lines they are. */
EXPORT int64_t allready_records(Bytes data, int64_t size, const Record *record, uint8_t *out, int64_t *written,
                                int64_t *lines) {
    Bytes p = data, end = data + size, line_end;
    uint8_t *at = out;
    Text texts[NUM_KEYS];
    *lines = 0;
    while (p < end && (line_end = memchr(p, '\n', (size_t)(end - p))) && texts_of(p, line_end, record, texts)) {
        const Text *text = &texts[TEXT], *time = &texts[TIME];
        uint8_t *start = at;
        if (!text->start || (time->start && time->has_escapes)) break;
        if (record->lengths[TIME]) {
            size_t n = time->start ? (size_t)(time->end - time->start) : 0;
            memcpy(at, time->start ? time->start : p, n);
            at += n;
            *at++ = ' ';
        }
        uint8_t *front = at;
        if (text->has_escapes) {
            at = unescaped(text->start, text->end, at);
        } else {
            memcpy(at, text->start, (size_t)(text->end - text->start));
            at += text->end - text->start;
        }
        int is_ended = at > front && at[-1] == '\n';
        if (is_ended) at--;
        if ((record->has_ends && !is_ended) || memchr(front, '\n', (size_t)(at - front))) {
            at = start;
            break;
        }
        *at++ = '\n';
        ++*lines;
        p = line_end + 1;
    }
    *written = at - out;
    return p - data;
}

/* Behind the escape that begins here, or `p`: \x1b[...m and its like, titles, two bytes. */
static Bytes escape_end(Bytes p, Bytes end) {
    Bytes q = p + 1, most;
    if (q >= end) return p;
    if (*q == '[') {
        for (most = ++q + 40; q < end && q < most && *q >= '0' && *q <= '?'; q++) continue;
        for (most = q + 8; q < end && q < most && *q >= ' ' && *q <= '/'; q++) continue;
        return q < end && *q >= '@' && *q <= '~' ? q + 1 : p;
    }
    if (*q == ']') {
        for (most = ++q + 400; q < end && q < most && *q != 7 && *q != 0x1b && *q != '\n'; q++) continue;
        if (q < end && *q == 7) return q + 1;
        return end - q >= 2 && *q == 0x1b && q[1] == '\\' ? q + 2 : q;
    }
    return (*q >= '@' && *q <= 'Z') || *q == '\\' || *q == '^' || *q == '_' ? q + 1 : p;
}

/* Copies the bytes without the escapes of a terminal; how many are left. */
EXPORT int64_t allready_uncoloured(Bytes p, int64_t size, uint8_t *out) {
    Bytes end = p + size;
    uint8_t *at = out;
    while (p < end) {
        Bytes next = memchr(p, 0x1b, (size_t)(end - p)), behind;
        if (!next) next = end;
        memcpy(at, p, (size_t)(next - p));
        at += next - p;
        p = next;
        if (p >= end) break;
        behind = escape_end(p, end);
        if (behind == p) *at++ = *p++;
        p = behind > p ? behind : p;
    }
    return at - out;
}
