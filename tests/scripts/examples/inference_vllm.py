from vllm import LLM, SamplingParams

llm = LLM(model="meta-llama/Llama-3.1-70B-Instruct", tensor_parallel_size=4, dtype="bfloat16")
for output in llm.generate(["Hello"], SamplingParams(max_tokens=100)):
    print(output.outputs[0].text)
