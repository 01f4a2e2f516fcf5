/** The footer of the landing page and of every page of the app: product, version, and what the server itself serves. */
import { cn } from "@/components/class-names";
import { useFolder } from "./session";

/** Put in by the build, from openapi.json. */
declare const APP_VERSION: string;

const LINKS = [
  { href: "/api/openapi.json", text: "API description" },
  { href: "/LICENSE.txt", text: "Apache License 2.0" },
];

export function Footer({ className }: { className?: string }) {
  // `bloom ui` answers some of the API only, and describes none of it.
  const links = useFolder() === null ? LINKS : LINKS.slice(1);
  return (
    <footer className={cn("flex flex-wrap justify-between gap-x-6 gap-y-1.5 border-t border-line py-4 text-xs text-dim", className)}>
      <span>GPU Bloom {APP_VERSION}</span>
      <ul className="flex flex-wrap gap-x-5 gap-y-1.5">
        {links.map(({ href, text }) => (
          <li key={href}>
            <a href={href} className="underline-offset-3 hover:text-text hover:underline">
              {text}
            </a>
          </li>
        ))}
      </ul>
    </footer>
  );
}
