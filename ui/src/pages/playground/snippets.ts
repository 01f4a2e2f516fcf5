/** The same question from a terminal and from a program. */

export const curlSnippet = (address: string, model: string) => `curl ${address}/chat/completions \\
  -H "Authorization: Bearer $BLOOM_TOKEN" \\
  -H "Content-Type: application/json" \\
  -d '{
    "model": "${model}",
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": true
  }'`;

export const pythonSnippet = (address: string, model: string) => `import os

from openai import OpenAI

client = OpenAI(base_url="${address}", api_key=os.environ["BLOOM_TOKEN"])
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello"}],
    stream=True,
)
for piece in answer:
    print(piece.choices[0].delta.content or "", end="")`;
