/** A person without a picture. Pictures from elsewhere are never loaded: they would tell that elsewhere who is here. */
export function Initials({ name }: { name: string }) {
  const initials = name
    .trim()
    .split(/\s+/)
    .filter((_, index, words) => index === 0 || index === words.length - 1)
    .map((word) => Array.from(word)[0] ?? "")
    .join("")
    .toUpperCase();
  return (
    <span
      aria-hidden
      className="grid size-8 shrink-0 place-items-center rounded-full bg-primary text-2xs font-[620] tracking-wide text-[#dbe4ff]"
    >
      {initials}
    </span>
  );
}
