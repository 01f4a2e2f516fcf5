import { useEffect, useState } from "react";
import { exactTime, relativeTime } from "@/text/relative-time";

/** "3 hours ago", with the exact moment on hover; keeps itself true while the page stays open. */
export function TimeAgo({ at }: { at: string }) {
  const [now, setNow] = useState(() => new Date());

  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), 30_000);
    return () => clearInterval(timer);
  }, []);

  const when = new Date(at);
  return (
    <time dateTime={at} title={exactTime(when)} className="whitespace-nowrap">
      {relativeTime(when, now)}
    </time>
  );
}
