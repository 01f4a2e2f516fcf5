import type { ComponentProps } from "react";
import { cn } from "./class-names";

// 16px on a phone: anything smaller makes iOS zoom into the field.
export const inputClass =
  "w-full rounded-control border border-line-strong bg-rail px-3 text-text transition-[border-color,box-shadow] duration-150 placeholder:text-[#8a94a3] hover:border-white/25 focus-visible:border-violet-bright focus-visible:ring-3 focus-visible:ring-violet/35 focus-visible:outline-none aria-invalid:border-danger-soft aria-invalid:focus-visible:ring-danger/30 disabled:opacity-60 max-sm:text-[16px]";

export function Input({ className, ...rest }: ComponentProps<"input">) {
  return <input className={cn(inputClass, "h-9.5 max-sm:h-11", className)} {...rest} />;
}

export function Textarea({ className, ...rest }: ComponentProps<"textarea">) {
  return <textarea className={cn(inputClass, "min-h-20 py-2", className)} {...rest} />;
}
