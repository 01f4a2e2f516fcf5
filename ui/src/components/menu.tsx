import { EllipsisVertical } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { Button } from "./button";

export type MenuItem = { text: string; onChoose: () => void };

/** What can be done with a row, behind one button: arrow keys move, Enter chooses. */
export function Menu({ label, items }: { label: string; items: MenuItem[] }) {
  return (
    <DropdownMenu.Root>
      <DropdownMenu.Trigger asChild>
        <Button variant="ghost" size="icon" aria-label={label} className="size-7 max-sm:size-9">
          <EllipsisVertical aria-hidden />
        </Button>
      </DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content align="end" sideOffset={4} className="z-50 min-w-40 animate-fade rounded-card border border-line-strong bg-raised p-1 shadow-xl shadow-black/40">
          {items.map(({ text, onChoose }) => (
            <DropdownMenu.Item key={text} onSelect={onChoose} className="cursor-pointer rounded-md px-2.5 py-1.5 text-sm outline-none data-[highlighted]:bg-violet/25 max-sm:py-2.5">
              {text}
            </DropdownMenu.Item>
          ))}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}
