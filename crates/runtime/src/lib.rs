//! Monitor, modes, controllers and the loop; runs programs and closures on Linux and on the simulated machine
