import { cn } from "./class-names";

const PETALS = [
  { turn: 0, className: "stroke-[#a98bfa]" },
  { turn: 90, className: "stroke-[#33c2cf]" },
  { turn: 180, className: "stroke-[#a98bfa]" },
  { turn: 270, className: "stroke-[#33c2cf]" },
];

export function BloomMark({ className }: { className?: string }) {
  return (
    <svg aria-hidden viewBox="0 0 24 24" fill="none" strokeWidth="1.8" className={cn("size-5.5", className)}>
      {PETALS.map(({ turn, className: colour }) => (
        <ellipse key={turn} cx="12" cy="6.6" rx="3.1" ry="4.6" transform={`rotate(${turn} 12 12)`} className={colour} />
      ))}
    </svg>
  );
}
