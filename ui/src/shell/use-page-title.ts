import { useEffect } from "react";

export function usePageTitle(title: string) {
  useEffect(() => {
    document.title = title === "GPU Bloom" ? title : `${title} · GPU Bloom`;
  }, [title]);
}
