//! `tkn pod-affinity`.

fn main() -> std::process::ExitCode {
    cli::main()
}
