/* What Hugging Face's GPT-2 calls the tensors of tutti_gpt_layer. Their linear layers are Conv1D,
 * whose weights are [in, out]; qkv is q, k and v one after the other, as ours is. Published files
 * leave out "transformer."; the head is the embedding, and in no file of its own, unless it was
 * trained apart.
 */
#include <tutti/checkpoint.h>

/* clang-format off */
#define OF_MODEL(X, prefix)                                                                        \
    X("tok.weight", prefix "wte.weight", false)                                                    \
    X("pos.weight", prefix "wpe.weight", false)                                                    \
    X("blocks.*.ln1.weight", prefix "h.*.ln_1.weight", false)                                      \
    X("blocks.*.ln1.bias", prefix "h.*.ln_1.bias", false)                                          \
    X("blocks.*.qkv.weight", prefix "h.*.attn.c_attn.weight", true)                                \
    X("blocks.*.qkv.bias", prefix "h.*.attn.c_attn.bias", false)                                   \
    X("blocks.*.proj.weight", prefix "h.*.attn.c_proj.weight", true)                               \
    X("blocks.*.proj.bias", prefix "h.*.attn.c_proj.bias", false)                                  \
    X("blocks.*.ln2.weight", prefix "h.*.ln_2.weight", false)                                      \
    X("blocks.*.ln2.bias", prefix "h.*.ln_2.bias", false)                                          \
    X("blocks.*.up.weight", prefix "h.*.mlp.c_fc.weight", true)                                    \
    X("blocks.*.up.bias", prefix "h.*.mlp.c_fc.bias", false)                                       \
    X("blocks.*.down.weight", prefix "h.*.mlp.c_proj.weight", true)                                \
    X("blocks.*.down.bias", prefix "h.*.mlp.c_proj.bias", false)                                   \
    X("ln.weight", prefix "ln_f.weight", false)                                                    \
    X("ln.bias", prefix "ln_f.bias", false)
/* clang-format on */

static const tutti_load_rule_t rules[] = {
#define X(name, stored, transposed) {name, stored, transposed},
    OF_MODEL(X, "transformer.") X("head.weight", "lm_head.weight", false) OF_MODEL(X, "")
        X("head.weight", "transformer.wte.weight", false) X("head.weight", "wte.weight", false)
#undef X
};

const tutti_load_rule_t *tutti_gpt2_rules(size_t *count)
{
    *count = sizeof rules / sizeof rules[0];
    return rules;
}
