import { QueryClient } from "@tanstack/react-query";
import { mayPass } from "./problem";

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 15_000,
      retry: (failures, error) => failures < 2 && mayPass(error),
    },
    mutations: { retry: false },
  },
});
