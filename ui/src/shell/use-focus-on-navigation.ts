import { useLocation } from "@tanstack/react-router";
import { useEffect, useRef } from "react";

/** After a change of page the keyboard continues in the new page, not at the link that led there. */
export function useFocusOnNavigation() {
  const { pathname } = useLocation();
  const content = useRef<HTMLElement>(null);
  const lastPath = useRef(pathname);

  useEffect(() => {
    if (lastPath.current === pathname) return;
    lastPath.current = pathname;
    content.current?.focus({ preventScroll: true });
  }, [pathname]);

  return content;
}
