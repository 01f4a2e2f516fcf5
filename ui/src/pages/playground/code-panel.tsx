/** The last prompt as a curl command and as a Python program. */
import { Link } from "@tanstack/react-router";
import { CopyButton } from "@/components/button";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";

const curlSnippet = (address: string, model: string) => `curl ${address}/chat/completions \\
  -H "Authorization: Bearer $BLOOM_TOKEN" \\
  -H "Content-Type: application/json" \\
  -d '{
    "model": "${model}",
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": true
  }'`;

const pythonSnippet = (address: string, model: string) => `import os

from openai import OpenAI

client = OpenAI(base_url="${address}", api_key=os.environ["BLOOM_TOKEN"])
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello"}],
    stream=True,
)
for piece in answer:
    print(piece.choices[0].delta.content or "", end="")`;

/** The same model for programs. */
export function CodePanel({ model }: { model: string }) {
  const address = `${window.location.origin}/v1`;
  const snippets = [
    ["curl", "curl", curlSnippet(address, model)],
    ["python", "Python", pythonSnippet(address, model)],
  ] as const;
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-2.5">
      <p className="text-sm text-dim">
        The API is compatible with OpenAI clients. Create a token with the scope “write” under{" "}
        <Link to="/settings" search={{ tab: "tokens" }} className="text-violet-soft underline underline-offset-2">
          Settings, Tokens
        </Link>
        . The model loads automatically on the first request. To use the base model, append <code className="font-mono text-xs">:base</code> to the model name.
      </p>
      <Tabs defaultValue="curl">
        <TabList aria-label="Language">
          {snippets.map(([key, name]) => (
            <Tab key={key} value={key}>
              {name}
            </Tab>
          ))}
        </TabList>
        {snippets.map(([key, name, text]) => (
          <TabPanel key={key} value={key} className="mt-2">
            {/* Wrapped: what scrolls sideways is out of reach for a keyboard. */}
            <pre className="rounded-control border border-line bg-rail p-3 font-mono text-xs wrap-anywhere whitespace-pre-wrap text-code">{text}</pre>
            <CopyButton text={text} label={`Copy the ${name} example`} className="mt-2" />
          </TabPanel>
        ))}
      </Tabs>
    </div>
  );
}
