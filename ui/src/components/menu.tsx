/** Actions behind one button. Arrow keys move, Enter chooses, Escape closes. */
import { Ellipsis, EllipsisVertical } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";
import { Button } from "./button";
import { cn } from "./class-names";

export type MenuItem = {
  text: string;
  /** A note at the right, such as a size. */
  note?: string;
  /** Cannot be undone: red, after a rule. */
  danger?: boolean;
  onChoose?: () => void;
  /** A link in place of an action; it is given the text. */
  link?: (text: ReactNode) => ReactNode;
};

type MenuProps = { label: string; items: MenuItem[]; /** In a row of a table it is small. */ size?: "row" | "page" };

const ITEM = "flex w-full cursor-pointer items-center justify-between gap-5 rounded-md px-2.5 py-1.5 text-sm whitespace-nowrap outline-none data-[highlighted]:bg-violet/25 max-sm:py-2.5";

export function Menu({ label, items, size = "row" }: MenuProps) {
  const safe = items.filter((item) => !item.danger);
  const dangerous = items.filter((item) => item.danger);
  if (items.length === 0) return null;
  return (
    <DropdownMenu.Root>
      <DropdownMenu.Trigger asChild>
        {size === "row" ? (
          <Button variant="ghost" size="icon" aria-label={label} className="size-7 max-sm:size-9">
            <EllipsisVertical aria-hidden />
          </Button>
        ) : (
          <Button size="icon" aria-label={label}>
            <Ellipsis aria-hidden />
          </Button>
        )}
      </DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content align="end" sideOffset={4} collisionPadding={8} className="z-50 min-w-44 animate-fade rounded-card border border-line-strong bg-raised p-1 shadow-xl shadow-black/40">
          {safe.map((item) => (
            <Item key={item.text} item={item} />
          ))}
          {safe.length > 0 && dangerous.length > 0 && <DropdownMenu.Separator className="mx-1.5 my-1 h-px bg-line-strong" />}
          {dangerous.map((item) => (
            <Item key={item.text} item={item} />
          ))}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

function Item({ item: { text, note, danger, onChoose, link } }: { item: MenuItem }) {
  const className = cn(ITEM, danger && "text-danger-soft");
  const content = (
    <>
      {text}
      {note && <small className="text-2xs text-dim">{note}</small>}
    </>
  );
  return link ? (
    <DropdownMenu.Item asChild className={className}>
      {link(content)}
    </DropdownMenu.Item>
  ) : (
    <DropdownMenu.Item onSelect={onChoose} className={className}>
      {content}
    </DropdownMenu.Item>
  );
}
