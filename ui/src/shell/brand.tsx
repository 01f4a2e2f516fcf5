import { Link } from "@tanstack/react-router";
import { BloomMark } from "@/components/bloom-mark";
import { cn } from "@/components/class-names";

export function Brand({ to, className }: { to: "/" | "/dashboard"; className?: string }) {
  return (
    <Link to={to} className={cn("flex w-max items-center gap-2.5 rounded-lg text-lg font-[650] tracking-[-0.01em]", className)}>
      <BloomMark />
      GPU Bloom
    </Link>
  );
}
