import { Link } from "@tanstack/react-router";
import { CopyButton } from "@/components/copy-button";
import { Tab, TabList, TabPanel, Tabs } from "@/components/tabs";
import { curlSnippet, pythonSnippet } from "./snippets";

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
        This server speaks the protocol of OpenAI’s clients. Create a token that may write under{" "}
        <Link to="/settings" search={{ tab: "tokens" }} className="text-violet-soft underline underline-offset-2">
          Settings, API tokens
        </Link>
        ; the model loads by itself when it is asked. Put <code className="font-mono text-xs">:base</code> behind its name for the model before the tuning.
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
            <pre className="rounded-control border border-line bg-rail p-3 font-mono text-xs break-words whitespace-pre-wrap text-[#c3cad5]">{text}</pre>
            <CopyButton text={text} label={`Copy the ${name} example`} className="mt-2" />
          </TabPanel>
        ))}
      </Tabs>
    </div>
  );
}
