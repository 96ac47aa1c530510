/* fuzz_sentencepiece.c -- tok/vocab: SentencePiece's .model. */
#include "fuzz/fuzz.h"
#include "fuzz/vocab_use.h"

const char fuzz_what[] = "a SentencePiece model";

int fuzz_seeds(void)
{
    static const char model[] = "\n\11\n\5<unk>\30\2\n\10\n\1a\25\0\0\0\0\n\10\n\1b\25\0\0\200\277\n\11\n\2ab\25\0\0\0\300\n\7\n\3<s>\30\3"
                                "\n\7\n\3yes\30\4\22\5\30\2\300\1\0\32\6\30\1\40\0\50\1";

    fuzz_add(model, sizeof model - 1);
    return fuzz_vocab_seeds("SentencePiece model");
}

int fuzz_one(const uint8_t *data, size_t n) { return fuzz_vocab(data, n); }
