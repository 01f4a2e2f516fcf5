import { Search } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { Input } from "@/components/input";
import { Spinner } from "@/components/spinner";

const PAUSE = 250;

type SearchBoxProps = { label: string; text: string; onSearch: (text: string) => void; busy?: boolean };

/** Searches when the typing pauses. The text lives here while it is typed, and in the address afterwards. */
export function SearchBox({ label, text, onSearch, busy }: SearchBoxProps) {
  const [typed, setTyped] = useState(text);
  const [sent, setSent] = useState(text);
  const search = useRef(onSearch);
  useEffect(() => {
    search.current = onSearch;
  });

  // The address changed by other means, such as the back button.
  if (text !== sent) {
    setSent(text);
    setTyped(text);
  }

  useEffect(() => {
    if (typed.trim() === sent) return;
    const timer = setTimeout(() => {
      setSent(typed.trim());
      search.current(typed.trim());
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [typed, sent]);

  return (
    <div className="relative mb-3.5 sm:max-w-xs">
      <Search aria-hidden className="pointer-events-none absolute top-1/2 left-3 size-4 -translate-y-1/2 text-dim" />
      <Input
        type="search"
        aria-label={label}
        placeholder={label}
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
        className="pr-9 pl-9"
      />
      {busy && (
        <span className="absolute top-1/2 right-3 -translate-y-1/2 text-dim">
          <Spinner />
        </span>
      )}
    </div>
  );
}
