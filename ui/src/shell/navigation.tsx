/** The navigation: its destinations, the list of links, the account corner and the menu on a phone. */
import { Link, useNavigate } from "@tanstack/react-router";
import { Activity, Database, FolderKanban, FolderOpen, LayoutDashboard, LogOut, type LucideIcon, Menu, MessagesSquare, Package, Save, ServerCog, Settings, Sparkles, SquareTerminal, X } from "lucide-react";
import { Dialog } from "radix-ui";
import { useState } from "react";
import { setSignedOut, signOut } from "@/api/auth";
import { ApiProblem, sentenceOf } from "@/api/problem";
import { Button } from "@/components/button";
import { dismissToasts, toastFailure } from "@/components/toasts";
import { stopUploads } from "@/uploads/upload-store";
import { Avatar } from "./avatar";
import { Brand } from "./page";
import { useCurrentUser, useFolder } from "./session";

type Destination = {
  to: "/dashboard" | "/projects" | "/runs" | "/finetune" | "/script" | "/datasets" | "/models" | "/checkpoints" | "/playground" | "/providers" | "/settings";
  text: string;
  icon: LucideIcon;
};

/** The destinations, in order. A group without a title stands at the top. */
const navigation: { title: string | null; items: Destination[] }[] = [
  {
    title: null,
    items: [
      { to: "/dashboard", text: "Dashboard", icon: LayoutDashboard },
      { to: "/projects", text: "Projects", icon: FolderKanban },
      { to: "/runs", text: "Runs", icon: Activity },
    ],
  },
  {
    title: "Studio",
    items: [
      { to: "/finetune", text: "Fine-tune", icon: Sparkles },
      { to: "/script", text: "Run a script", icon: SquareTerminal },
      { to: "/datasets", text: "Datasets", icon: Database },
      { to: "/models", text: "Models", icon: Package },
      { to: "/checkpoints", text: "Checkpoints", icon: Save },
      { to: "/playground", text: "Playground", icon: MessagesSquare },
    ],
  },
  {
    title: "Compute",
    items: [{ to: "/providers", text: "Providers", icon: ServerCog }],
  },
  {
    title: "Account",
    items: [{ to: "/settings", text: "Settings", icon: Settings }],
  },
];

/** All that there is over a folder of runs. */
const OF_FOLDER = navigation.slice(0, 1).map((group) => ({ ...group, items: group.items.filter(({ to }) => to === "/runs") }));

export function NavigationList({ onChoose }: { onChoose?: () => void }) {
  const shown = useFolder() === null ? navigation : OF_FOLDER;
  return (
    <nav aria-label="Main" className="flex flex-col">
      {shown.map((group) => (
        <div key={group.title ?? "top"}>
          {group.title && (
            <h2 className="mx-2.5 mt-4 mb-1 text-[11px] tracking-[0.06em] text-faint uppercase">{group.title}</h2>
          )}
          <ul className="flex flex-col gap-0.5">
            {group.items.map(({ to, text, icon: Icon }) => (
              <li key={to}>
                <Link
                  to={to}
                  onClick={onChoose}
                  className="flex items-center gap-2.5 rounded-lg px-2.5 py-1.75 text-dim transition-colors duration-150 hover:bg-white/5 hover:text-text aria-[current=page]:bg-violet/18 aria-[current=page]:text-white aria-[current=page]:shadow-[inset_2px_0_0_var(--color-violet)] max-lg:py-2.5"
                >
                  <Icon aria-hidden className="size-4 shrink-0 opacity-80" />
                  {text}
                </Link>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  );
}

/** Who is signed in, or the folder that is shown. */
export function AccountCorner() {
  const folder = useFolder();
  return folder === null ? <Account /> : <FolderName folder={folder} />;
}

function FolderName({ folder }: { folder: string }) {
  return (
    <div className="flex items-center gap-2.5 border-t border-line px-2.5 pt-3">
      <FolderOpen aria-hidden className="size-4 shrink-0 text-dim" />
      <div className="min-w-0 flex-1 leading-tight">
        <div className="truncate font-[540]">{folder.split("/").findLast(Boolean) ?? folder}</div>
        <div className="truncate text-2xs text-dim" title={folder}>
          {folder}
        </div>
      </div>
    </div>
  );
}

function Account() {
  const user = useCurrentUser();
  const navigate = useNavigate();
  const [pending, setPending] = useState(false);

  async function leave() {
    setPending(true);
    try {
      await signOut();
    } catch (error) {
      // A session that has already ended is the wanted result.
      if (!(error instanceof ApiProblem && error.status === 401)) {
        setPending(false);
        toastFailure(`The sign-out failed; you are still signed in. ${sentenceOf(error)}`);
        return;
      }
    }
    // Leave first: the pages of the app must not be redrawn without anybody in them.
    await navigate({ to: "/" });
    stopUploads();
    dismissToasts();
    await setSignedOut();
  }

  return (
    <div className="flex items-center gap-2.5 border-t border-line px-1 pt-3">
      <Avatar person={user} />
      <div className="min-w-0 flex-1 leading-tight">
        <div className="truncate font-[540]">{user.name}</div>
        <div className="truncate text-2xs text-dim" title={user.email}>
          {user.email}
        </div>
      </div>
      <Button variant="ghost" size="icon" aria-label="Sign out" title="Sign out" pending={pending} onClick={() => void leave()}>
        {!pending && <LogOut aria-hidden />}
      </Button>
    </div>
  );
}

/** The navigation on a small screen: a bar at the top whose menu slides in over the page. */
export function PhoneMenu() {
  const [open, setOpen] = useState(false);
  return (
    <header className="sticky top-0 z-30 flex items-center justify-between border-b border-line bg-rail px-4 py-2 lg:hidden print:hidden">
      <Brand to="/dashboard" />
      <Dialog.Root open={open} onOpenChange={setOpen}>
        <Dialog.Trigger asChild>
          <Button variant="ghost" size="icon" aria-label="Open menu" className="-mr-2">
            <Menu aria-hidden className="size-5!" />
          </Button>
        </Dialog.Trigger>
        <Dialog.Portal>
          <Dialog.Overlay className="fixed inset-0 z-40 animate-fade bg-overlay/70" />
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
