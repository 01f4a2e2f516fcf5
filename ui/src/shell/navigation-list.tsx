import { Link } from "@tanstack/react-router";
import { navigation } from "./navigation";

export function NavigationList({ onChoose }: { onChoose?: () => void }) {
  return (
    <nav aria-label="Main" className="flex flex-col">
      {navigation.map((group) => (
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
