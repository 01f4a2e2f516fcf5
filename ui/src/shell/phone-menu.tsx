import { Menu, X } from "lucide-react";
import { Dialog } from "radix-ui";
import { useState } from "react";
import { Button } from "@/components/button";
import { AccountCorner } from "./account-corner";
import { Brand } from "./brand";
import { NavigationList } from "./navigation-list";

/** The rail on a small screen: a bar at the top whose menu slides in over the page. */
export function PhoneMenu() {
  const [open, setOpen] = useState(false);
  return (
    <header className="sticky top-0 z-30 flex items-center justify-between border-b border-line bg-rail px-4 py-2 lg:hidden">
      <Brand to="/dashboard" />
      <Dialog.Root open={open} onOpenChange={setOpen}>
        <Dialog.Trigger asChild>
          <Button variant="ghost" size="icon" aria-label="Open menu" className="-mr-2">
            <Menu aria-hidden className="size-5!" />
          </Button>
        </Dialog.Trigger>
        <Dialog.Portal>
          <Dialog.Overlay className="fixed inset-0 z-40 animate-fade bg-[#0d1320]/70" />
          <Dialog.Content
            aria-describedby={undefined}
            className="fixed inset-y-0 left-0 z-50 flex w-72 max-w-[85vw] animate-sheet flex-col gap-4 border-r border-line bg-rail px-3 py-4 focus:outline-none"
          >
            <div className="flex items-center justify-between pl-2.5">
              <Dialog.Title className="text-lg font-[650]">Menu</Dialog.Title>
              <Dialog.Close asChild>
                <Button variant="ghost" size="icon" aria-label="Close menu">
                  <X aria-hidden />
                </Button>
              </Dialog.Close>
            </div>
            <NavigationList onChoose={() => setOpen(false)} />
            <div className="mt-auto">
              <AccountCorner />
            </div>
          </Dialog.Content>
        </Dialog.Portal>
      </Dialog.Root>
    </header>
  );
}
