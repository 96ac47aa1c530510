# sparse_model.awk -- header and config.json of a qwen3_moe whose values are a hole in the file.
#
# -v dir= layers= experts= hidden= inter= vocab= dtype=F32|BF16; prints the bytes of the header and of the data.
function add(name, rows, cols,    end) {
	end = at + rows * (cols ? cols : 1) * (dtype == "BF16" ? 2 : 4)
	body = body sprintf("%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%.0f,%.0f]}", body == "" ? "" : ",",
		name, dtype, cols ? rows "," cols : rows, at, end)
	at = end
}
BEGIN {
	add("model.embed_tokens.weight", vocab, hidden)
	for (l = 0; l < layers; l++) {
		p = "model.layers." l "."
		add(p "input_layernorm.weight", hidden)
		add(p "post_attention_layernorm.weight", hidden)
		n = split("q_proj k_proj v_proj o_proj", proj, " ")
		for (i = 1; i <= n; i++)
			add(p "self_attn." proj[i] ".weight", hidden, hidden)
		add(p "self_attn.q_norm.weight", 64)
		add(p "self_attn.k_norm.weight", 64)
		add(p "mlp.gate.weight", experts, hidden)
		for (e = 0; e < experts; e++) {
			add(p "mlp.experts." e ".gate_proj.weight", inter, hidden)
			add(p "mlp.experts." e ".up_proj.weight", inter, hidden)
			add(p "mlp.experts." e ".down_proj.weight", hidden, inter)
		}
	}
	add("model.norm.weight", hidden)
	add("lm_head.weight", vocab, hidden)
	body = "{" body "}"
	while (length(body) % 8)
		body = body " "
	printf "%s", body > (dir "/header")
	printf "{\"model_type\":\"qwen3_moe\",\"hidden_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,", \
		hidden, layers, hidden / 64, hidden / 64 > (dir "/config.json")
	printf "\"head_dim\":64,\"vocab_size\":%d,\"num_experts\":%d,\"num_experts_per_tok\":2,\"moe_intermediate_size\":%d,\"tie_word_embeddings\":false}\n", \
		vocab, experts, inter > (dir "/config.json")
	printf "%.0f %.0f\n", length(body), at
}
