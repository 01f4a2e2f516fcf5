/** A person's picture, or the initials of a person without one. */
import { cn } from "@/components/class-names";

type Props = { person: { name: string; image: string | null }; className?: string };

/** Pictures come from this server only: a request to another site would tell that site who is here. */
export function Avatar({ person, className }: Props) {
  const shape = cn("size-8 shrink-0 rounded-full", className);
  if (person.image !== null) return <img src={person.image} alt="" width={256} height={256} className={cn(shape, "object-cover")} />;
  return (
    <span aria-hidden className={cn(shape, "grid place-items-center bg-primary text-2xs font-[620] tracking-wide text-text")}>
      {initialsOf(person.name)}
    </span>
  );
}

function initialsOf(name: string): string {
  return name
    .trim()
    .split(/\s+/)
    .filter((_, index, words) => index === 0 || index === words.length - 1)
    .map((word) => Array.from(word)[0] ?? "")
    .join("")
    .toUpperCase();
}
